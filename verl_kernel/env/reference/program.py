# SPDX-License-Identifier: Apache-2.0
"""Executes the source of a task's reference: draws inputs, builds the model and runs it.

Weights come from a seed that is a function of the task alone. It is public, because a candidate holds the weights of
its model anyway, and the same in the runner, so that a candidate that creates its parameters in the reference's order
has the reference's values even where names differ.
"""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.func import functional_call

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.ops.reads import Reads, distinct_bytes, storage_of
from verl_kernel.env.reference.cancellation import rounded_apart
from verl_kernel.env.reference.crashes import survives
from verl_kernel.env.reference.ties import TiesDecided
from verl_kernel.env.reference.value import Value
from verl_kernel.env.seeding import seed_everything, seed_of
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.weights import state_of
from verl_kernel.errors import TaskError

PROBE = b"probe"
"""Purpose of the seeds of draws by which a judge gets to know a reference."""


class ReferenceProgram:
    """The functions of a task's source, with values in place of nested data.

    Args:
        task: the task with the source.
        device: device that it runs on.

    Raises:
        TaskError: the source, or later any of its functions, fails or returns data that no candidate could be given.
    """

    model: Any
    """The model, created by `build`."""
    may_crash: bool = False
    """Whether integers out of range end the process, so that varied inputs are tried in a child first."""
    fails_at_times: bool = False
    """Whether a draw, or a model of another seed, failed where those of the task's own seed did not."""
    adds_long_exponents: bool = False
    """Whether products of exponentials have long exponents on drawn inputs (`cancellation`), so that any may."""
    has_choices: bool = False
    """Whether the model runs ops that may have to choose between equal numbers."""

    def __init__(self, task: Task, device: DeviceBackend) -> None:
        self.task, self.device = task, device
        self.weight_seed = seed_of(b"weights", (task.size_of or task.fingerprint).encode())
        self._names = self._execute()

    def init_inputs(self) -> Value:
        """Return the arguments of the model's constructor."""
        seed_everything(self.weight_seed)
        data = self._call("get_init_inputs()", self._names["get_init_inputs"])
        return self._value("get_init_inputs()", _as_call(data)).on(self.device)

    def build(self, init: Value) -> None:
        """Create the model, with its initial weights, from arguments of its constructor."""
        # The runner uses this seed too: parameters created in this order have these values.
        self.model, self._init = self._built(init, self.weight_seed), init

    def _built(self, init: Value, seed: int) -> Any:
        entry = self.task.entry_point
        seed_everything(seed)
        args, kwargs = init.build()
        model = self._call(f"{entry}(*get_init_inputs())", lambda: self._names[entry](*args, **kwargs))
        return self.device.place(model)

    def trained(self) -> dict[str, torch.Tensor]:
        """Return the floating parameters that training changes, by name; tied ones by their first name."""
        return _trained(self.model)

    def started(self) -> dict[str, torch.Tensor]:
        """Return the parameters and buffers with which the model started, by name."""
        return state_of(self._built(self._init, self.weight_seed))

    def trained_from(self, seed: int) -> dict[str, torch.Tensor]:
        """Return such parameters of another model that starts from another seed."""
        return _trained(self._built(self._init, seed))

    def state(self) -> dict[str, torch.Tensor]:
        """Copy the model's parameters and buffers, by name."""
        return {name: tensor.detach().clone() for name, tensor in state_of(self.model).items()}

    def draw_own(self) -> Value:
        """Draw inputs from the task's own seed, at which a reference must work."""
        return self.draw(seed_of(PROBE, self.task.fingerprint.encode()))

    def draw_for(self, purpose: str) -> Value:
        """Draw inputs from the seed of a purpose; from the task's own where `get_inputs()` fails at that one."""
        try:
            return self.draw(seed_of(purpose.encode(), self.task.fingerprint.encode()))
        except TaskError:
            return self.draw_own()

    def draw(self, seed: int) -> Value:
        """Draw inputs of the model with get_inputs()."""
        data = self._call("get_inputs()", lambda: self._get_inputs(seed))
        if not isinstance(data, list | tuple | dict) or not data:
            raise self.unfit(f"get_inputs() returns {_kind(data)} where a list of the model's inputs belongs")
        value = self._value("get_inputs()", _as_call(data))
        if not value.tensors:
            raise self.unfit("get_inputs() returns no tensor")
        return value.on(self.device)

    def forward(self, inputs: Value) -> Value:
        """Return the outputs of the model on a copy of these inputs."""
        return self.forward_in_place(inputs.copy())

    def forward_if_it_survives(self, inputs: Value) -> Value:
        """Return the outputs of the model; raises TaskError also where they would end the process."""
        if self.may_crash and not survives(lambda: self.forward(inputs)):
            raise self.unfit("forward ends the process on varied integers")
        return self.forward(inputs)

    def forward_with_ties(self, inputs: Value, last: bool) -> Value:
        """Return the outputs of the model where the first, or the last, of equal numbers is chosen (`ties`)."""
        with TiesDecided(last):
            return self.forward(inputs)

    def forward_rounded_apart(self, inputs: Value) -> Value:
        """Return the outputs of the model where each use of a number rounds it differently (`cancellation`).

        Raises:
            TaskError: it fails, or exponents are long that are not on drawn inputs.
        """
        with rounded_apart() as mode:
            output = self.forward(inputs)
        if mode.adds_long_exponents and not self.adds_long_exponents:
            raise self.unfit("products of exponentials have long exponents")
        return output

    def note_exponents(self, drawn: Value) -> None:
        """Find out whether exponents are long on drawn inputs."""
        with rounded_apart() as mode:
            self.forward(drawn)
        self.adds_long_exponents = mode.adds_long_exponents

    def forward_in_place(self, inputs: Value) -> Value:
        """Return the outputs of the model, which may write to these inputs."""
        return self._value("the model", self._forward(inputs))

    def forward_in_float64(self, inputs: Value) -> Value:
        """Return the outputs of the model where inputs, parameters and buffers are float64 (raises TaskError)."""
        args, kwargs = Value(inputs.tree, [_widened(tensor) for tensor in inputs.tensors]).unflattened()
        state = {name: _widened(tensor) for name, tensor in state_of(self.model).items()}
        # `functional_call`: the model keeps its own numbers, whatever happens in the forward.
        run = partial(self.model, *args, **kwargs)
        if state:
            run = partial(functional_call, self.model, state, args, kwargs)
        return self._value("the model", self._call("forward in float64", run))

    def traced(self, inputs: Value) -> tuple[Value, list[TraceEvent]]:
        """Return the outputs of the model, which may write to these inputs, and the ops that it ran."""
        with self.device.record() as events:
            output = self._forward(inputs)
        return self._value("the model", output), list(events)

    def surveyed(self, inputs: Value) -> tuple[Value, list[TraceEvent], Demand]:
        """Like `traced`, plus the least memory traffic and work of the forward."""
        # An output that lies in an input's or a weight's memory is no new traffic.
        operands = [*inputs.tensors, *state_of(self.model).values()]
        reads = Reads(operands)
        with reads:
            output, events = self.traced(inputs)
        own_storages = {storage_of(tensor) for tensor in operands}
        results = {storage_of(tensor): tensor for tensor in output.tensors if storage_of(tensor) not in own_storages}
        return output, events, Demand.of(events, reads.bytes, sum(map(distinct_bytes, results.values())))

    def unfit(self, reason: str) -> TaskError:
        """Return an error that says why the program cannot be a task's reference."""
        return TaskError(f"reference {self.task.task_id} cannot serve as a task: {reason}")

    def _execute(self) -> dict[str, Any]:
        name = f"<reference {self.task.fingerprint[:12]}>"
        # `inspect` finds the source of an executed string only in `linecache`.
        lines = self.task.reference.splitlines(keepends=True)
        linecache.cache[name] = (len(self.task.reference), None, lines, name)
        module = types.ModuleType(f"reference_{self.task.fingerprint[:12]}")
        self._call("the source", lambda: exec(compile(self.task.reference, name, "exec"), module.__dict__))
        return module.__dict__

    def _get_inputs(self, seed: int) -> Any:
        seed_everything(seed)
        if self.device.name == "cpu":
            return self._names["get_inputs"]()
        # Drawn on the device itself where that works: large inputs would take long to draw on the host and to copy.
        try:
            with self.device.inputs_here():
                return self._names["get_inputs"]()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # get_inputs() uses a generator of the host, which cannot draw on the device
            seed_everything(seed)
            return self._names["get_inputs"]()

    def _forward(self, inputs: Value) -> Any:
        args, kwargs = inputs.unflattened()
        return self._call("forward", lambda: self.model(*args, **kwargs))

    def _value(self, what: str, data: Any) -> Value:
        try:
            return Value.of(data)
        except TypeError as exc:  # its text names the leaf that cannot cross processes
            raise self.unfit(f"{what} returns {exc}") from exc

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except torch.OutOfMemoryError:  # the judge's GPU is short of memory: no fault of the task
            raise
        except (Exception, SystemExit) as exc:  # a reference may raise any exception; all mean the same
            raise self.unfit(f"{what} raised {type(exc).__name__}: {_one_line(exc)}") from exc


def _trained(model: Any) -> dict[str, torch.Tensor]:
    if not isinstance(model, torch.nn.Module):
        return {}
    named = model.named_parameters()
    return {
        name: parameter.detach().cpu()
        for name, parameter in named
        if parameter.requires_grad and parameter.is_floating_point()
    }


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor, as float64 if it is of a float type of 16 or 32 bits."""
    narrow = tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)
    return tensor.double() if narrow else tensor.clone()


def _as_call(data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Parse arguments in KernelBench's forms: a list, a dict of keywords, or `[[...], {...}]`."""
    if isinstance(data, dict):
        return (), data
    items = tuple(data) if isinstance(data, list | tuple) else (data,)
    if len(items) == 2 and isinstance(items[0], list | tuple) and isinstance(items[1], dict):
        return tuple(items[0]), items[1]
    return items, {}


def _kind(data: Any) -> str:
    empty = data is None or (isinstance(data, list | tuple | dict) and not data)
    return "nothing" if empty else f"a {type(data).__name__}"


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300]
