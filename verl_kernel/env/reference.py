# SPDX-License-Identifier: Apache-2.0
"""The reference program inside the judge: its weights, its inputs, its outputs, its trace.

Weights come from a seed that is a function of the task alone: public, because whoever holds a model holds its
weights anyway, and the same in the runner, so that a candidate that creates its parameters in the reference's order
has the reference's values even where names differ. Inputs come from the judge's secret and share nothing with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verl_kernel.env.arena import flatten, place, unflatten
from verl_kernel.env.compare import compare
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.form import Facts, storages, tensor_facts
from verl_kernel.env.runner import copy_state, seed_everything
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent
from verl_kernel.errors import TaskError

_WEIGHTS, _PROBE = b"weights", b"probe"
_VARIATIONS = ("sign", "scale", "none")


@dataclass(frozen=True)
class Value:
    """Nested data as a JSON tree and the tensors its leaves name."""

    tree: Any
    tensors: list[torch.Tensor]

    @classmethod
    def of(cls, data: Any) -> Value:
        """Flatten `data`; raises TypeError for a leaf that cannot cross processes."""
        tensors: list[torch.Tensor] = []
        tree = flatten(data, tensors)
        return cls(tree, [tensor.detach() for tensor in tensors])

    def on(self, device: DeviceBackend) -> Value:
        """The same on a device."""
        return Value(self.tree, [device.to_device(tensor) for tensor in self.tensors])

    def build(self) -> Any:
        """The data again, with copies of its tensors."""
        return unflatten(self.tree, [tensor.clone() for tensor in self.tensors])


@dataclass(frozen=True)
class Trial:
    """Fresh inputs (a tree of `(args, kwargs)`) and what the reference makes of them."""

    inputs: Value
    expected: Value
    facts: list[Facts]
    """Form of each expected output."""


@dataclass(frozen=True)
class Preparation:
    """What was learnt about a reference when it was built and checked; all of it can be stored."""

    init: Value
    state: dict[str, torch.Tensor]
    events: list[TraceEvent]
    facts: dict[str, Any]
    """JSON values of the attributes in `FACTS`."""


FACTS = ("mutates_inputs", "variation", "input_bytes", "output_bytes", "written_bytes")


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
    mutates_inputs: bool
    variation: str
    input_bytes: int
    output_bytes: int
    written_bytes: int

    def __init__(self, task: Task, device: DeviceBackend, known: Preparation | None = None) -> None:
        self.task, self._device = task, device
        self.weight_seed = _seed(_WEIGHTS, task.fingerprint.encode())
        with _restored_generators(), torch.no_grad():
            self._program = self._execute()
            if known is None or not self._recall(known):
                self._prepare()

    def prepared(self) -> Preparation:
        """What another judge needs in order not to prepare this reference again."""
        return Preparation(self.init, self.state, self.events, {name: getattr(self, name) for name in FACTS})

    def _recall(self, known: Preparation) -> bool:
        """Take over an earlier preparation; whether the model built now has the parameters it speaks of."""
        self.init = known.init.on(self._device)
        self.model = self._build(self.init)
        self.state = {name: self._device.to_device(tensor) for name, tensor in known.state.items()}
        self.events = known.events
        for name in FACTS:
            setattr(self, name, known.facts[name])
        return copy_state(self.model, self.state)

    def _prepare(self) -> None:
        seed_everything(self.weight_seed)
        data = self._call("get_init_inputs()", self._program["get_init_inputs"])
        self.init = self._value("get_init_inputs()", _as_call(data)).on(self._device)
        self.model = self._build(self.init)
        self.state = {name: tensor.detach().clone() for name, tensor in self._state_dict().items()}
        probe = self._draw(_seed(_PROBE, self.task.fingerprint.encode()))
        expected, self.events = self._traced(probe)
        self._check(probe, expected)
        self.mutates_inputs = self._mutates(probe)
        self.variation = self._variation(probe, expected)
        self.input_bytes = place(probe.tensors)[1]
        self.output_bytes = place(expected.tensors)[1]
        self.written_bytes = sum(tensor.numel() * tensor.element_size() for tensor in expected.tensors)

    def trial(self, secret: bytes, number: int, varied: bool) -> Trial:
        """Inputs of one trial and the expected output.

        Args:
            secret: the evaluation's secret.
            number: which trial of it.
            varied: whether floating inputs get another scale and, where the program allows it, other signs.

        Raises:
            TaskError: the program fails on these inputs.
        """
        seed = _seed(secret, str(number).encode())
        with _restored_generators(), torch.no_grad():
            inputs = self._draw(seed)
            if varied:
                inputs = _vary(inputs, self.variation, seed)
            if place(inputs.tensors)[1] > self.input_bytes:
                raise TaskError(f"reference {self.task.task_id}: get_inputs() returns larger tensors on another call")
            return self._trial(inputs)

    def _trial(self, inputs: Value) -> Trial:
        copies = [tensor.clone() for tensor in inputs.tensors]
        args, kwargs = unflatten(inputs.tree, copies)
        output = self._call("forward", lambda: self.model(*args, **kwargs))
        expected, given = self._value("the model", output), storages(copies)
        return Trial(inputs, expected, [tensor_facts(tensor, given) for tensor in expected.tensors])

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

    def _state_dict(self) -> dict[str, torch.Tensor]:
        state = self.model.state_dict() if isinstance(self.model, torch.nn.Module) else {}
        return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}

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
        except RuntimeError:  # it draws with a generator of the host's
            seed_everything(seed)
            return self._program["get_inputs"]()

    def _forward(self, inputs: Value) -> Value:
        return self._trial(inputs).expected

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
        if not _agree(expected, self._forward(probe)):
            raise self._unfit("two calls on the same inputs differ (dropout, or another use of random numbers?)")

    def _mutates(self, probe: Value) -> bool:
        copy = Value(probe.tree, [tensor.clone() for tensor in probe.tensors])
        args, kwargs = unflatten(copy.tree, copy.tensors)
        self._call("forward", lambda: self.model(*args, **kwargs))
        return not all(map(_same_bytes, copy.tensors, probe.tensors))

    def _variation(self, probe: Value, expected: Value) -> str:
        """The strongest change of inputs under which outputs stay as finite as they were."""
        finite = _finite(expected)
        for kind in _VARIATIONS[:-1]:
            with contextlib.suppress(TaskError):
                if _finite(self._forward(_vary(probe, kind, 0))) or not finite:
                    return kind
        return "none"

    def _value(self, what: str, data: Any) -> Value:
        try:
            return Value.of(data)
        except TypeError as exc:
            raise self._unfit(f"{what} returns {exc}") from exc

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
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


def _vary(inputs: Value, kind: str, seed: int) -> Value:
    generators = {d: torch.Generator(d).manual_seed(seed) for d in {tensor.device for tensor in inputs.tensors}}
    return Value(inputs.tree, [_varied(tensor, kind, generators[tensor.device]) for tensor in inputs.tensors])


def _varied(tensor: torch.Tensor, kind: str, generator: torch.Generator) -> torch.Tensor:
    if kind == "none" or not tensor.is_floating_point():
        return tensor
    scale = 0.25 + 0.5 * float(torch.rand((), generator=generator, device=tensor.device))
    if kind == "scale":
        return tensor * scale
    flips = torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device) * 2 - 1
    return tensor * (scale * flips).to(tensor.dtype)


def _finite(value: Value) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in value.tensors)


def _agree(one: Value, other: Value) -> bool:
    pairs = zip(one.tensors, other.tensors, strict=True)
    return one.tree == other.tree and all(compare(a, b).ok for a, b in pairs)


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def _kind(data: Any) -> str:
    empty = data is None or (isinstance(data, list | tuple | dict) and not data)
    return "nothing" if empty else f"a {type(data).__name__}"


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300]
