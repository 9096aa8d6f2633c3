# SPDX-License-Identifier: Apache-2.0
"""The reference program inside the judge: its weights, its inputs, its outputs, its trace.

Weights come from a seed that is a function of the task alone: public, because whoever holds a model holds its
weights anyway, and the same in the runner, so that a candidate that creates its parameters in the reference's order
has the reference's values even where names differ. Those that start as a constant are changed (`weights`). Inputs
come from the judge's secret and share nothing with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import random
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from verl_kernel.env import tf32
from verl_kernel.env.arena import place, unflatten
from verl_kernel.env.compare import compare
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.float32 import precision
from verl_kernel.env.form import Facts, storages, tensor_facts
from verl_kernel.env.room import Room, rooms
from verl_kernel.env.scale import SHARP
from verl_kernel.env.seeding import seed_everything
from verl_kernel.env.task import Task
from verl_kernel.env.terms import ineffective
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.value import Value
from verl_kernel.env.variation import Variation, jittered, learn, same_bytes
from verl_kernel.env.weights import Constants, copy_state, find_constants, renewed, state_of
from verl_kernel.errors import TaskError

_WEIGHTS, _PROBE, _FLAGS = b"weights", b"probe", b"flags"
_DRAWS, _SIZED_DRAWS, _REDRAWS = 3, 8, 64
"""Draws of a preparation, those where sizes change, and tries of a trial until its draw fits."""
_MARGIN = 2
"""Room for draws larger than all those of a preparation, where sizes change."""
_ROOM = 3
"""How often the noise of jittered inputs (8 units in the last place of float32) must fit into a sharper tolerance."""


@dataclass(frozen=True)
class Trial:
    """Fresh inputs (a tree of `(args, kwargs)`) and what the reference makes of them."""

    inputs: Value
    expected: Value
    facts: list[Facts]
    """Form of each expected output."""
    events: list[TraceEvent]
    """What the reference ran, on these sizes."""

    @property
    def written_bytes(self) -> int:
        """Size of the outputs."""
        return self.expected.nbytes


@dataclass(frozen=True)
class Preparation:
    """What was learnt about a reference when it was built and checked; all of it can be stored."""

    init: Value
    state: dict[str, torch.Tensor]
    events: list[TraceEvent]
    facts: dict[str, Any]
    """JSON values of the attributes in `FACTS`."""


FACTS = (
    *("mutates_inputs", "is_finite", "is_sized", "input_bytes", "output_bytes", "task_flags"),
    *("variation", "constants", "least"),
)


class Reference:
    """A task's reference program, built and checked once, asked for trials ever after.

    Args:
        task: its source.
        device: where it runs.
        known: an earlier preparation of the same task on the same device, which spares another one.

    Raises:
        TaskError: it cannot serve as a task; the sentence says why.
    """

    init: Value
    state: dict[str, torch.Tensor]
    events: list[TraceEvent]
    constants: Constants
    """Weights that have other values than at their start."""
    mutates_inputs: bool
    is_finite: bool
    """Whether its outputs are."""
    is_sized: bool
    """Whether sizes differ between draws."""
    variation: Variation
    input_bytes: int
    """Room that a trial's inputs get; `output_bytes` likewise."""
    output_bytes: int
    least: float | None
    """Smallest scale of a row or column that outputs are compared with (`compare`)."""
    task_flags: list[str]
    """What makes it a poor task (`EvalResult.task_flags`)."""

    def __init__(self, task: Task, device: DeviceBackend, known: Preparation | None = None) -> None:
        self.task, self._device = task, device
        self.weight_seed = _seed(_WEIGHTS, task.fingerprint.encode())
        with _restored_generators(), precision("ieee"), torch.no_grad():
            self._program = self._execute()
            if known is None or not self._recall(known):
                self._prepare()
        self._has_initial = False

    @property
    def weight_bytes(self) -> int:
        """Size of its weights and arguments."""
        tensors = [*self.init.tensors, *self.state.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @property
    def runner_bytes(self) -> int:
        """What a runner holds of it: weights and the candidate's, inputs, places of outputs and the outputs."""
        return 2 * self.weight_bytes + self.input_bytes + 2 * self.output_bytes

    def prepared(self) -> Preparation:
        """What another judge needs in order not to prepare this reference again."""
        facts = {name: getattr(self, name) for name in FACTS}
        facts |= {"variation": self.variation.to_json(), "constants": {k: list(v) for k, v in self.constants.items()}}
        return Preparation(self.init, self.state, self.events, facts)

    def _recall(self, known: Preparation) -> bool:
        """Take over an earlier preparation; whether the model built now has the parameters it speaks of."""
        self.init = known.init.on(self._device)
        self.model = self._build(self.init)
        self.state = {name: self._device.to_device(tensor) for name, tensor in known.state.items()}
        self.events = known.events
        for name in FACTS:
            setattr(self, name, known.facts[name])
        self.variation = Variation.from_json(known.facts["variation"])
        self.constants = {name: (value, kind) for name, (value, kind) in known.facts["constants"].items()}
        return copy_state(self.model, self.state)

    def _prepare(self) -> None:
        seed_everything(self.weight_seed)
        data = self._call("get_init_inputs()", self._program["get_init_inputs"])
        self.init = self._value("get_init_inputs()", _as_call(data)).on(self._device)
        self.model = self._build(self.init)
        probe = self._draw(_seed(_PROBE, self.task.fingerprint.encode()))
        self._change_weights(probe)
        expected, self.events = self._traced(probe)
        self._check(probe, expected)
        self.is_finite = expected.is_finite
        self.mutates_inputs = self._mutates(probe)
        self._explore(probe, expected)

    def _change_weights(self, probe: Value) -> None:
        """Give weights that start constant other values, unless the outputs suffer from it."""
        self.constants, before = find_constants(self.model), self._state()
        self.state = before
        if not self.constants:
            return
        expected, generator = self._forward(probe), torch.Generator().manual_seed(self.weight_seed)
        was_steady = self._is_steady(probe, expected)
        values = {name: renewed(before[name], value, generator) for name, (value, _) in self.constants.items()}
        copy_state(self.model, {**before, **values})
        self.state = self._state()  # tensors that are tied agree again
        with contextlib.suppress(TaskError):
            changed = self._forward(probe)
            if not changed.is_worse(expected) and self._is_steady(probe, changed) >= was_steady:
                copy_state(self.model, self.state)
                return
        self.state, self.constants = before, {}
        copy_state(self.model, self.state)

    def _explore(self, probe: Value, expected: Value) -> None:
        """Learn from further draws how inputs may be varied, how large they get and what never changes."""
        draws = [probe, *(self._draw(_seed(_PROBE, b"%d" % number)) for number in range(1, _DRAWS))]
        sizes = [[tensor.shape for tensor in draw.tensors] for draw in draws]
        outputs = [expected, *map(self._forward, draws[1:2])]
        self.is_sized = sizes[1:] != sizes[:-1] or outputs[0].shapes != outputs[1].shapes
        if self.is_sized:
            draws += [self._draw(_seed(_PROBE, b"%d" % number)) for number in range(_DRAWS, _SIZED_DRAWS)]
            outputs += map(self._forward, draws[2:])
        margin = _MARGIN if self.is_sized else 1
        self.input_bytes = margin * max(place(draw.tensors)[1] for draw in draws)
        self.output_bytes = margin * max(place(output.tensors)[1] for output in outputs)
        self.variation = self._learn([draw.tensors for draw in draws], probe, expected)
        self.least = self._least(probe, expected)
        self.task_flags = self._flags(probe, expected)

    def _learn(self, draws: list[list[torch.Tensor]], probe: Value, expected: Value) -> Variation:
        if {len(draw) for draw in draws} != {len(probe.tensors)}:
            return Variation(())
        is_steady = self._is_steady(probe, expected)

        def bears(some: list[torch.Tensor]) -> bool:
            return self._bears(Value(probe.tree, some), expected, is_steady)

        def agree(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
            first, second = (self._tried(Value(probe.tree, some)) for some in (one, other))
            if first is None or second is None:
                return False
            return expected.is_floating and first.agrees(second)

        return learn(draws, bears, is_steady, agree)

    def trial(self, secret: bytes, number: int, varied: bool, large: bool = False) -> Trial:
        """Inputs of one trial and the expected output.

        Args:
            secret: the evaluation's secret.
            number: which trial of it.
            varied: whether inputs are varied as far as the program bears it; always so where get_inputs() never
                changes them.
            large: whether a varied trial is the one of large inputs.

        Raises:
            TaskError: the program fails on these inputs, or no draw fits into the room there is.
        """
        with _restored_generators(), precision("ieee"), torch.no_grad():
            for redraw in range(_REDRAWS):
                seed = _seed(secret, str(number).encode(), *[str(redraw).encode()][: redraw > 0])
                trial = self._varied(seed, large) if varied or self.variation.always else self._trial(self._draw(seed))
                if self._fits(trial):
                    return trial
        raise TaskError(
            f"reference {self.task.task_id}: get_inputs() returns tensors far larger than in its first {_SIZED_DRAWS} "
            f"calls, {_REDRAWS} times: bound its sizes"
        )

    def room(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> list[Room | None] | None:
        """How far from each expected output TF32 may take a program, None where it takes it nowhere.

        Args:
            trial: a trial of this reference.
            guard: context manager around each of the forwards that this takes.
        """
        with _restored_generators(), torch.no_grad():
            return rooms(trial.expected.tensors, partial(self._rounded, trial, guard), self.least)

    def _rounded(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]], seed: int | None
    ) -> list[torch.Tensor] | None:
        with guard(), contextlib.suppress(TaskError), tf32.rounded_products(trial.events, seed) as rounding:
            output = self._forward(trial.inputs)
            return output.tensors if rounding.was_used else None
        return None  # it fails on rounded numbers

    def use_weights(self, initial: bool) -> None:
        """Run on the initial weights, for a candidate whose own could not be told apart, or on the changed ones."""
        if not self.constants or initial == self._has_initial:
            return
        own = state_of(self.model)
        with torch.no_grad():
            for name, (value, _) in self.constants.items():
                own[name].copy_(torch.full_like(own[name], value) if initial else self.state[name])
        self._has_initial = initial

    def _varied(self, seed: int, large: bool) -> Trial:
        inputs = self._draw(seed)
        with contextlib.suppress(TaskError):
            trial = self._trial(Value(inputs.tree, self.variation.apply(inputs.tensors, seed, large)))
            if not self.is_finite or trial.expected.is_finite:
                return trial
        return self._trial(inputs)

    def _fits(self, trial: Trial) -> bool:
        inputs, outputs = place(trial.inputs.tensors)[1], place(trial.expected.tensors)[1]
        return inputs <= self.input_bytes and outputs <= self.output_bytes

    def _trial(self, inputs: Value) -> Trial:
        copies = [tensor.clone() for tensor in inputs.tensors]
        args, kwargs = unflatten(inputs.tree, copies)
        with self._device.record() if self.is_sized else contextlib.nullcontext(self.events) as events:
            output = self._call("forward", lambda: self.model(*args, **kwargs))
        expected, given = self._value("the model", output), storages(copies)
        return Trial(inputs, expected, [tensor_facts(tensor, given) for tensor in expected.tensors], list(events))

    def _execute(self) -> dict[str, Any]:
        name = f"<reference {self.task.fingerprint[:12]}>"
        lines = self.task.reference.splitlines(keepends=True)
        linecache.cache[name] = (len(self.task.reference), None, lines, name)
        module = types.ModuleType(f"reference_{self.task.fingerprint[:12]}")
        self._call("the source", lambda: exec(compile(self.task.reference, name, "exec"), module.__dict__))
        return module.__dict__

    def _build(self, init: Value) -> Any:
        entry = self.task.entry_point
        seed_everything(self.weight_seed)
        args, kwargs = init.build()
        model = self._call(f"{entry}(*get_init_inputs())", lambda: self._program[entry](*args, **kwargs))
        return self._device.place(model)

    def _state(self) -> dict[str, torch.Tensor]:
        return {name: tensor.detach().clone() for name, tensor in state_of(self.model).items()}

    def _draw(self, seed: int) -> Value:
        data = self._call("get_inputs()", lambda: self._get_inputs(seed))
        if not isinstance(data, list | tuple | dict) or not data:
            raise self._unfit(f"get_inputs() returns {_kind(data)} where a list of the model's inputs belongs")
        value = self._value("get_inputs()", _as_call(data))
        if not value.tensors:
            raise self._unfit("get_inputs() returns no tensor")
        return value.on(self._device)

    def _get_inputs(self, seed: int) -> Any:
        seed_everything(seed)
        if self._device.name == "cpu":
            return self._program["get_inputs"]()
        try:
            with self._device.inputs_here():
                return self._program["get_inputs"]()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # it draws with a generator of the host's
            seed_everything(seed)
            return self._program["get_inputs"]()

    def _forward(self, inputs: Value) -> Value:
        args, kwargs = inputs.build()
        return self._value("the model", self._call("forward", lambda: self.model(*args, **kwargs)))

    def _traced(self, inputs: Value) -> tuple[Value, list[TraceEvent]]:
        args, kwargs = inputs.build()
        with self._device.record() as events:
            output = self._call("forward", lambda: self.model(*args, **kwargs))
        return self._value("the model", output), list(events)

    def _check(self, probe: Value, expected: Value) -> None:
        everything = [*probe.tensors, *expected.tensors, *self.init.tensors, *self.state.values()]
        if not expected.tensors:
            raise self._unfit("the model returns no tensor")
        if self._device.name == "cpu" and any(tensor.dtype is torch.bfloat16 for tensor in everything):
            raise self._unfit("it uses bfloat16, which the cpu device computes wrong: use float32 or float16")
        if any(tensor.device.type == "meta" for tensor in everything):
            raise self._unfit("it uses tensors without data (device meta)")
        if not expected.agrees(self._forward(probe)):
            raise self._unfit("two calls on the same inputs differ (dropout, or another use of random numbers?)")

    def _mutates(self, probe: Value) -> bool:
        copy = Value(probe.tree, [tensor.clone() for tensor in probe.tensors])
        args, kwargs = unflatten(copy.tree, copy.tensors)
        self._call("forward", lambda: self.model(*args, **kwargs))
        return not all(map(same_bytes, copy.tensors, probe.tensors))

    def _bears(self, inputs: Value, usual: Value, is_steady: bool) -> bool:
        with contextlib.suppress(TaskError):
            output = self._forward(inputs)
            return not output.is_worse(usual) and (not is_steady or self._is_steady(inputs, output))
        return False

    def _is_steady(self, inputs: Value, output: Value) -> bool:
        """Whether changes in the last places of the inputs leave the output what it is."""
        with contextlib.suppress(TaskError):
            return output.agrees(self._forward(Value(inputs.tree, jittered(inputs.tensors))))
        return False

    def _least(self, probe: Value, expected: Value) -> float | None:
        """The smallest one that leaves the noise of these outputs room, in usual and varied trials."""
        dtypes = {tensor.dtype for tensor in expected.tensors if tensor.is_floating_point()}
        if len(dtypes) != 1:
            return None
        varied = [Value(probe.tree, self.variation.apply(probe.tensors, seed, seed > 1)) for seed in range(3)]
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        for inputs in (probe, *varied):
            with contextlib.suppress(TaskError):
                output, other = self._forward(inputs), self._forward(Value(inputs.tree, jittered(inputs.tensors)))
                pairs += zip(output.tensors, other.tensors, strict=True)
        return next((least for least in SHARP.get(dtypes.pop(), ()) if _has_room(pairs, least)), None)

    def _flags(self, probe: Value, expected: Value) -> list[str]:
        """Whether inputs and outputs are the same in every trial, varied ones among them; else terms without effect."""
        inputs, outputs = [probe], [expected]
        for number in range(_DRAWS):
            trial = self.trial(_FLAGS, number, varied=number > 0, large=number > 1)
            inputs, outputs = [*inputs, trial.inputs], [*outputs, trial.expected]
        if not all(expected.agrees(output) or expected.is_same_constant(output) for output in outputs):
            return self._ineffective_terms(list(zip(inputs, outputs, strict=True)))
        constant = all(
            value.tree == probe.tree and all(map(same_bytes, value.tensors, probe.tensors)) for value in inputs
        )
        return ["constant_inputs"] * constant + ["constant_output"]

    def _ineffective_terms(self, pairs: list[tuple[Value, Value]]) -> list[str]:
        runs = [partial(self._tried, inputs) for inputs, _ in pairs]
        names = ineffective(self.events, runs, lambda number, output: self._comes_out(pairs[number][1], output))
        return sorted({f"insensitive:{name.partition('::')[2]}" for name in names})

    def _tried(self, inputs: Value) -> Value | None:
        with contextlib.suppress(TaskError):
            return self._forward(inputs)
        return None

    def _comes_out(self, expected: Value, output: Value | None) -> bool:
        return output is not None and expected.agrees(output, self.least)

    def _value(self, what: str, data: Any) -> Value:
        try:
            return Value.of(data)
        except TypeError as exc:
            raise self._unfit(f"{what} returns {exc}") from exc

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except torch.OutOfMemoryError:  # of the GPU's memory: the judge's matter, not the task's
            raise
        except (Exception, SystemExit) as exc:  # a reference may raise anything, and each of it means the same
            raise self._unfit(f"{what} raised {type(exc).__name__}: {_one_line(exc)}") from exc

    def _unfit(self, reason: str) -> TaskError:
        return TaskError(f"reference {self.task.task_id} cannot serve as a task: {reason}")


def _seed(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha256(b"\0".join(parts)).digest()[:8], "big") >> 1


@contextlib.contextmanager
def _restored_generators() -> Iterator[None]:
    """Give the caller's random generators back as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        yield
    random.setstate(python)
    np.random.set_state(numpy)


def _as_call(data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments in KernelBench's forms: a list, a dict of keywords, or `[[...], {...}]`."""
    if isinstance(data, dict):
        return (), data
    items = tuple(data) if isinstance(data, list | tuple) else (data,)
    if len(items) == 2 and isinstance(items[0], list | tuple) and isinstance(items[1], dict):
        return tuple(items[0]), items[1]
    return items, {}


def _has_room(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], least: float) -> bool:
    def exaggerated(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + _ROOM * (other - one) if one.is_floating_point() else other

    return all(
        one.shape == other.shape and compare(one, exaggerated(one, other), "scaled", least).ok for one, other in pairs
    )


def _kind(data: Any) -> str:
    empty = data is None or (isinstance(data, list | tuple | dict) and not data)
    return "nothing" if empty else f"a {type(data).__name__}"


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300]
