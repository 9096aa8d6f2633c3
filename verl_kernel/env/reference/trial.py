# SPDX-License-Identifier: Apache-2.0
"""One trial of a reference: fresh inputs and the expected outputs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch

from verl_kernel.env.comparison.tf32 import precision
from verl_kernel.env.eight_bits import widened
from verl_kernel.env.ipc.shared_memory import place
from verl_kernel.env.ipc.tensor_facts import Facts, storages, tensor_facts
from verl_kernel.env.reference.jitter import jittered
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.preparation import Preparation
from verl_kernel.env.reference.program import ReferenceProgram
from verl_kernel.env.reference.value import Value
from verl_kernel.env.seeding import restored_generators, seed_of
from verl_kernel.env.trace import TraceEvent
from verl_kernel.errors import TaskError

SIZED_DRAWS = 8
"""Number of draws in a preparation where sizes change."""
_NEAR_SIZE = 512.0
"""Largest magnitude of several inputs whose products, summed along a row, stay below 1e6."""
_REDRAWS = 64
"""Largest number of draws for a trial until one fits the reserved memory."""


@dataclass(frozen=True)
class Trial:
    """Fresh inputs (a tree of `(args, kwargs)`) and the reference's outputs on them."""

    inputs: Value
    expected: Value
    facts: list[Facts]
    """Form of each expected output."""
    events: list[TraceEvent]
    """Ops that the reference ran on inputs of these sizes."""
    written_bytes: int
    """Size of the outputs; of those that lie in an input's memory, of the numbers in it that change."""


def draw_trial(program: ReferenceProgram, preparation: Preparation, secret: bytes, number: int, kind: Kind) -> Trial:
    """Draw the inputs of one trial and compute the expected output (`Reference.trial`)."""
    failure: TaskError | None = None
    with restored_generators(), precision("ieee"), torch.no_grad():
        for redraw in range(_REDRAWS):
            # A repeated draw adds its number; the first one has the seed of the trial alone.
            seed = seed_of(secret, str(number).encode(), *[str(redraw).encode()][: redraw > 0])
            try:
                trial = _trial_of_kind(program, preparation, program.draw(seed), seed, kind)
            except TaskError as exc:  # it works at other seeds: those count
                failure = exc
                continue
            if _fits(trial, preparation):
                return trial
        if failure is not None:
            return _trial_of_kind(program, preparation, program.draw_own(), seed, kind)
    raise TaskError(
        f"reference {program.task.task_id}: get_inputs() returns tensors far larger than in its first {SIZED_DRAWS} "
        f"calls, {_REDRAWS} times: bound its sizes"
    )


def _trial_of_kind(program: ReferenceProgram, preparation: Preparation, inputs: Value, seed: int, kind: Kind) -> Trial:
    is_plain = kind == "drawn" and not preparation.traits.variation.always
    return (
        _trial_on(program, preparation, inputs) if is_plain else _varied_trial(program, preparation, inputs, seed, kind)
    )


def _varied_trial(program: ReferenceProgram, preparation: Preparation, inputs: Value, seed: int, kind: Kind) -> Trial:
    """Return a trial on varied inputs; where the program fails or rounding may decide, on weaker variations or none."""
    kind = "varied" if kind == "drawn" else kind
    for tensors, is_far in preparation.traits.variation.choices(inputs.tensors, seed, kind):
        with contextlib.suppress(TaskError):
            varied = Value(inputs.tree, tensors)
            if program.may_crash:  # in a child first: the judge must not die of a candidate's trial
                program.forward_if_it_survives(varied)
            trial = _trial_on(program, preparation, varied)
            is_usable = not preparation.traits.is_finite or trial.expected.is_finite
            is_steady = not is_far or holds_steady(program, trial.inputs, trial.expected)
            if is_usable and is_steady and not depends_on_ties(program, trial.inputs, trial.expected):
                return trial
    return _trial_on(program, preparation, inputs)  # no variation is usable: inputs as drawn


def holds_steady(program: ReferenceProgram, inputs: Value, output: Value) -> bool:
    """Whether changes in the last places, of the inputs and of what cancels, leave the output what it is.

    A few elements of the output may change, which the judge tolerates, but none where products of several inputs may
    pass the -1e6 that correct kernels write where a mask hides a score.

    Raises:
        TaskError: the program fails on such inputs.
    """
    moved = program.forward_rounded_apart(Value(inputs.tree, jittered(inputs.tensors)))
    floats = [widened(tensor) for tensor in inputs.tensors if tensor.is_floating_point()]
    is_near = len(floats) == 1 or all(bool((tensor.abs() <= _NEAR_SIZE).all()) for tensor in floats)
    return output.nearly_agrees(moved) if is_near else output.agrees(moved)


def depends_on_ties(program: ReferenceProgram, inputs: Value, output: Value) -> bool:
    """Whether the output is another one where ties are decided otherwise (raises TaskError)."""
    if not program.has_choices:
        return False
    return not all(output.agrees(program.forward_with_ties(inputs, last)) for last in (False, True))


def _trial_on(program: ReferenceProgram, preparation: Preparation, inputs: Value) -> Trial:
    copies = inputs.copy()  # a reference may write to its inputs, and the candidate gets them as they were
    if preparation.traits.is_sized:
        expected, events = program.traced(copies)
    else:
        expected, events = program.forward_in_place(copies), preparation.events
    owned = storages(copies.tensors)
    facts = [tensor_facts(tensor, owned) for tensor in expected.tensors]
    own = [tensor for tensor, fact in zip(expected.tensors, facts, strict=True) if not fact["aliased"]]
    pairs = zip(inputs.tensors, copies.tensors, strict=True) if preparation.traits.mutates_inputs else ()
    changed = sum(int((widened(before) != widened(after)).sum()) * after.element_size() for before, after in pairs)
    return Trial(inputs, expected, facts, list(events), Value(None, own).nbytes + changed)


def _fits(trial: Trial, preparation: Preparation) -> bool:
    inputs, outputs = place(trial.inputs.tensors)[1], place(trial.expected.tensors)[1]
    return inputs <= preparation.traits.input_bytes and outputs <= preparation.traits.output_bytes
