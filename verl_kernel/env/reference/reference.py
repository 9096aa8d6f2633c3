# SPDX-License-Identifier: Apache-2.0
"""The reference inside the judge: a task's program, prepared once, from which every trial is drawn.

Inputs come from the judge's secret and share nothing with the seed that weights come from (`reference_program`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch

from verl_kernel.env.comparison import tf32
from verl_kernel.env.comparison.tf32 import precision
from verl_kernel.env.comparison.tf32_tolerance import STEP_RUNS, Room, rooms, step_rooms
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.reference.exploration import explore
from verl_kernel.env.reference.jitter import jittered
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.preparation import Preparation
from verl_kernel.env.reference.program import ReferenceProgram
from verl_kernel.env.reference.ties import has_choices
from verl_kernel.env.reference.trial import Trial, draw_trial
from verl_kernel.env.reference.value import Value
from verl_kernel.env.seeding import restored_generators
from verl_kernel.env.task import Task
from verl_kernel.env.weights import copy_state, state_of
from verl_kernel.errors import TaskError


class Reference:
    """A task's reference program, built and checked once, from which every trial is drawn.

    Its attributes are those of its preparation (`Preparation`, `Traits`); `demand` is None where sizes change.

    Args:
        task: the task with the source.
        device: device that it runs on.
        earlier: an earlier preparation of the same task on the same device, used instead of a new one.

    Raises:
        TaskError: the program cannot serve as a task; the message says why.
    """

    def __init__(self, task: Task, device: DeviceBackend, earlier: Preparation | None = None) -> None:
        self.task = task
        with restored_generators(), precision("ieee"), torch.no_grad():
            self._program = ReferenceProgram(task, device)
            self.preparation = _taken_over(self._program, earlier) or explore(self._program)
        # Set again, for a preparation that was taken over did not run the program.
        self._program.has_choices = has_choices(self.preparation.events)
        self._program.may_crash = self.preparation.traits.may_crash
        self._program.adds_long_exponents = self.preparation.traits.adds_long_exponents
        self.model, self.weight_seed = self._program.model, self._program.weight_seed
        self.init, self.state, self.events = self.preparation.init, self.preparation.state, self.preparation.events
        self.demand = None if self.preparation.traits.is_sized else self.preparation.demand
        traits = self.preparation.traits
        self.constants, self.mutates_inputs, self.smallest_scale = (
            traits.constants,
            traits.mutates_inputs,
            traits.smallest_scale,
        )
        self.is_switchable, self.moves_values = traits.is_switchable, traits.moves_values
        self.is_sized, self.input_bytes, self.output_bytes = traits.is_sized, traits.input_bytes, traits.output_bytes
        self.task_flags = traits.task_flags
        self.structured = traits.structured
        self._has_initial = False

    @property
    def weight_bytes(self) -> int:
        """Size of the weights and constructor arguments."""
        tensors = [*self.init.tensors, *self.state.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def shares_weights(self, other: Reference) -> bool:
        """Whether a candidate that was loaded with the weights of another size of the task has this one's."""
        mine, others = (
            (reference.weight_seed, reference.constants, reference.structured) for reference in (self, other)
        )
        return mine == others

    @property
    def runner_bytes(self) -> int:
        """Bytes in a runner: its weights and the candidate's, inputs, buffers of the outputs and the outputs."""
        return 2 * self.weight_bytes + self.input_bytes + 2 * self.output_bytes

    def trial(self, secret: bytes, number: int, kind: Kind) -> Trial:
        """Draw the inputs of one trial and compute the expected output.

        Args:
            secret: the evaluation's secret.
            number: number of the trial in the evaluation.
            kind: how inputs are changed, as far as the program's outputs stay usable; always varied where get_inputs()
                returns the same each time.

        Raises:
            TaskError: the program fails on these inputs, or no draw fits into the reserved memory.
        """
        return draw_trial(self._program, self.preparation, secret, number, kind)

    def room(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> list[Room | None] | None:
        """Compute the allowance of each expected output for TF32; None if TF32 changes nothing.

        Args:
            trial: a trial of this reference.
            guard: context manager around each of the forwards that this takes.
        """
        with restored_generators(), torch.no_grad():
            return rooms(trial.expected.tensors, partial(self._rounded, trial, guard), self.smallest_scale)

    def step_room(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> list[Room | None] | None:
        """Compute the allowance of each expected output for changes in the last digits of inputs, and for its rounding.

        Args:
            trial: a trial of this reference.
            guard: context manager around each of the forwards that this takes.
        """
        with restored_generators(), precision("ieee"), torch.no_grad():
            runs = [self._jittered(trial, guard, seed) for seed in range(STEP_RUNS)]
            # A program may be more precise than the reference: the exact value is right too.
            exact = self._exact(trial, guard)
            return step_rooms(trial.expected.tensors, runs if exact is None else [*runs, exact])

    def _jittered(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]], seed: int
    ) -> list[torch.Tensor] | None:
        inputs = Value(trial.inputs.tree, jittered(trial.inputs.tensors, seed))
        with guard(), contextlib.suppress(TaskError):
            return self._program.forward(inputs).tensors
        return None

    def _exact(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> list[torch.Tensor] | None:
        """Return the outputs in float64; None if the program has none of the same shapes."""
        with guard(), contextlib.suppress(TaskError):
            exact = self._program.forward_in_float64(trial.inputs).tensors
            return (
                exact
                if [tensor.shape for tensor in exact] == [tensor.shape for tensor in trial.expected.tensors]
                else None
            )
        return None

    def _rounded(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]], seed: int | None
    ) -> list[torch.Tensor] | None:
        with guard(), contextlib.suppress(TaskError), tf32.rounded_products(trial.events, seed) as rounding:
            output = self._program.forward(trial.inputs)
            return output.tensors if rounding.was_used else None  # nothing to allow where no factor was rounded
        return None  # the program fails on rounded factors

    def tied_outputs(
        self, trial: Trial, guard: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> Iterator[list[torch.Tensor]]:
        """Yield outputs that are right too, as ties may be decided otherwise (`ties`).

        Args:
            trial: a trial of this reference.
            guard: context manager around each of the forwards that this takes.
        """
        for last in (False, True) if self._program.has_choices else ():
            with restored_generators(), precision("ieee"), torch.no_grad(), guard(), contextlib.suppress(TaskError):
                output = self._program.forward_with_ties(trial.inputs, last)
                if output.shapes == trial.expected.shapes:
                    yield output.tensors

    def output(self, inputs: Value) -> Value | None:
        """Return the program's outputs on copies of these inputs; None where it fails on them."""
        with restored_generators(), precision("ieee"), torch.no_grad(), contextlib.suppress(TaskError):
            return self._program.forward(inputs)
        return None

    def parameters(self) -> dict[str, torch.Tensor]:
        """Copy the model's parameters, by name; tied parameters appear once."""
        if not isinstance(self.model, torch.nn.Module):
            return {}
        return {name: tensor.detach().clone() for name, tensor in self.model.named_parameters()}

    @contextlib.contextmanager
    def other_parameters(self, values: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Give the program's parameters other values in the body."""
        saved = self.parameters()
        own = dict(self.model.named_parameters()) if saved else {}
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(values[name])
            try:
                yield
            finally:
                for name, tensor in own.items():
                    tensor.copy_(saved[name])

    def use_weights(self, initial: bool) -> None:
        """Use the initial weights, for a candidate whose weights could not be matched, or the changed ones."""
        if not self.has_changed_weights or initial == self._has_initial:
            return
        # Constants are written from their number; structured parameters need the model built once more.
        own = state_of(self.model)
        started = self._program.started() if initial and self.structured else {}
        with torch.no_grad():
            for name in (*self.constants, *self.structured):
                start = self.constants[name][0] if name in self.constants else 0.0
                own[name].copy_(started.get(name, torch.full_like(own[name], start)) if initial else self.state[name])
        self._has_initial = initial

    @property
    def has_changed_weights(self) -> bool:
        """Whether weights were given other values than those that they start with."""
        return bool(self.constants or self.structured)


def _taken_over(program: ReferenceProgram, earlier: Preparation | None) -> Preparation | None:
    """Return an earlier preparation on the program's device; None if the model built now has other parameters."""
    if earlier is None:
        return None
    init = earlier.init.on(program.device)
    program.build(init)
    state = {name: program.device.to_device(tensor) for name, tensor in earlier.state.items()}
    return replace(earlier, init=init, state=state) if copy_state(program.model, state) else None
