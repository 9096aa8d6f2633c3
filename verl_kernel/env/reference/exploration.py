# SPDX-License-Identifier: Apache-2.0
"""Runs a program to find out whether it can be a task's reference, and learns what a judge needs to know about it.

Weights that start as a constant are given other values (`weights`). Further draws show how inputs may be varied, how
large they get and which of them never change.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import torch

from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.comparison.scale import SHARP
from verl_kernel.env.ipc.shared_memory import place
from verl_kernel.env.ops.call import HALF
from verl_kernel.env.reference.crashes import beyond, survives
from verl_kernel.env.reference.jitter import jittered
from verl_kernel.env.reference.kinds import ENDS, KINDS, Kind
from verl_kernel.env.reference.moved_values import MovedValues
from verl_kernel.env.reference.negligible_terms import INSENSITIVE, ineffective
from verl_kernel.env.reference.preparation import Preparation, Traits
from verl_kernel.env.reference.program import PROBE, ReferenceProgram
from verl_kernel.env.reference.roles import same_bytes, unchanged
from verl_kernel.env.reference.structured_parameters import (
    MOST_ELEMENTS,
    SEEDS,
    disturbed,
    find_structured,
    keep_padding,
)
from verl_kernel.env.reference.ties import has_choices
from verl_kernel.env.reference.trial import SIZED_DRAWS, depends_on_ties, draw_trial, holds_steady
from verl_kernel.env.reference.value import Value
from verl_kernel.env.reference.variation import Tensors, Variation, learn, sizes_of_spikes
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.torch_modes import switched
from verl_kernel.env.weights import Constants, copy_state, find_constants, renewed, state_of
from verl_kernel.errors import TaskError

FAILS_AT_TIMES = "fails_at_times"
"""Flag for a reference that fails at seeds other than the task's own: trials keep to those at which it works."""
FIXED_INPUT = "fixed_input:"
"""Prefix of the flag for an input that is the same in every trial, varied ones included; its number follows."""
_FLAGS = b"flags"
_DRAWS = 3
"""Number of draws in a preparation where sizes do not change."""
_TRIES = 16
"""Seeds tried for these and the draws where sizes change, if some of them fail."""
_MOST_DRAWS = 48
"""Most draws from which relations between elements of inputs are learned, where a few do not tell them from accidents.
"""
_DRAWN_BYTES = 1 << 28
"""Bytes of all these draws after which no further one is made."""
_MARGIN = 2
"""Factor of memory reserved for draws larger than all those of a preparation, where sizes change."""
_NOISE_ROOM = 3
"""Factor by which a sharper tolerance must exceed the noise of jittered inputs (8 float32 units in the last place)."""


def explore(program: ReferenceProgram) -> Preparation:
    """Build the program's model, check it and learn how its inputs may vary; the caller restores random generators.

    Raises:
        TaskError: the program cannot serve as a task; the message says why.
    """
    init = program.init_inputs()
    program.build(init)
    probe = program.draw_own()
    program.note_exponents(probe)
    constants, structured, state = _change_weights(program, probe)
    expected, events, demand = program.surveyed(probe.copy())
    program.has_choices = has_choices(events)
    _check(program, probe, expected, [*init.tensors, *state.values()])
    preparation = Preparation(init, state, events, demand, _traits(program, probe, expected, constants, structured))
    flags = _flags(program, preparation, probe, expected) + [FAILS_AT_TIMES] * program.fails_at_times
    return replace(preparation, traits=replace(preparation.traits, task_flags=flags))


Changed = tuple[Constants, tuple[str, ...], dict[str, torch.Tensor]]
"""Constants and structured parameters that were changed, and all weights."""


def _change_weights(program: ReferenceProgram, probe: Value) -> Changed:
    """Give weights that start constant, or with a structure, other values, unless outputs degrade."""
    structured, constants = find_structured(_initial_parameters(program)), find_constants(program.model)
    # Both kinds of changes, or one of them, the first combination whose outputs stay usable.
    for changed in ((constants, structured), (constants, ()), ({}, structured)):
        if any(changed) and (state := _changed(program, probe, *changed)) is not None:
            return (*changed, state)
    return {}, (), program.state()


def _initial_parameters(program: ReferenceProgram) -> list[dict[str, torch.Tensor]]:
    """Return the trained parameters of models from several seeds, that of the task first; none of a large one."""
    starts = [program.trained()]
    if 0 < sum(tensor.numel() for tensor in starts[0].values()) <= MOST_ELEMENTS:
        for seed in range(1, SEEDS):
            with _noted(program):
                starts.append(program.trained_from(seed))
    return starts if len(starts) > 1 else [{}]


def _changed(
    program: ReferenceProgram, probe: Value, constants: Constants, structured: tuple[str, ...]
) -> dict[str, torch.Tensor] | None:
    """Change weights; returns all of them, or puts them back and returns None where outputs degrade."""
    before, generator = program.state(), torch.Generator().manual_seed(program.weight_seed)
    expected = program.forward(probe)
    was_steady = _is_steady(program, probe, expected)
    values = {name: renewed(before[name], value, generator) for name, (value, _) in constants.items()}
    # From one generator with the task's public seed: every judge gives a task the same weights.
    values |= {name: disturbed(before[name], generator) for name in structured}
    keep_padding(program.model, before, values)
    copy_state(program.model, {**before, **values})
    state = program.state()  # read back, so that tied tensors have one value
    with contextlib.suppress(TaskError):
        changed = program.forward(probe)
        if not changed.is_worse(expected) and _is_steady(program, probe, changed) >= was_steady:
            copy_state(program.model, state)
            return state
    copy_state(program.model, before)
    return None


def _check(program: ReferenceProgram, probe: Value, expected: Value, constants: list[torch.Tensor]) -> None:
    everything = [*probe.tensors, *expected.tensors, *constants]
    if not expected.tensors:
        raise program.unfit("the model returns no tensor")
    if any(tensor.device.type == "meta" for tensor in everything):
        raise program.unfit("it uses tensors without data (device meta)")
    if not expected.agrees(program.forward(probe)):
        raise program.unfit("two calls on the same inputs differ (dropout, or another use of random numbers?)")


def _traits(
    program: ReferenceProgram, probe: Value, expected: Value, constants: Constants, structured: tuple[str, ...]
) -> Traits:
    """Return all traits but the task flags, which need trials."""
    mutates_inputs = _mutates(program, probe)
    further = _further_draws(program)
    pairs = [(probe, expected), *itertools.islice(further, _DRAWS - 1)]
    is_sized = any(draw.shapes != probe.shapes or output.shapes != expected.shapes for draw, output in pairs)
    if is_sized:  # memory is reserved for the largest draw seen, so more of them are looked at
        pairs += itertools.islice(further, SIZED_DRAWS - _DRAWS)
    draws, outputs = [draw for draw, _ in pairs], [output for _, output in pairs]
    # Before variations are learned, whose integers would end this process.
    program.may_crash = _may_crash(program, probe)
    variation = _learn(program, [draw.tensors for draw in draws] * (1 + (len(draws) == 1)), probe, expected)
    return Traits(
        mutates_inputs=mutates_inputs,
        is_finite=expected.is_finite,
        is_sized=is_sized,
        variation=variation,
        constants=constants,
        structured=structured,
        moves_values=_moves_values(program, probe),
        may_crash=program.may_crash,
        adds_long_exponents=program.adds_long_exponents,
        is_switchable=_is_switchable(program, probe, expected),
        input_bytes=_shared_bytes(draws, is_sized),
        output_bytes=_shared_bytes(outputs, is_sized),
        smallest_scale=_smallest_scale(program, variation, probe, expected),
        task_flags=[],
    )


@contextlib.contextmanager
def _noted(program: ReferenceProgram) -> Iterator[None]:
    """Pass over a failure at a seed other than the task's own, and note that there is one."""
    try:
        yield
    except TaskError:
        program.fails_at_times = True


def _further_draws(program: ReferenceProgram) -> Iterator[tuple[Value, Value]]:
    """Yield further inputs with the outputs on them, from the seeds at which the program works."""
    for number in range(1, _TRIES):
        with _noted(program):
            inputs = program.draw(seed_of(PROBE, b"%d" % number))
            yield inputs, program.forward(inputs)


def _shared_bytes(values: list[Value], is_sized: bool) -> int:
    """Return the bytes that the largest of these values takes in shared memory, with a margin where sizes change."""
    return (_MARGIN if is_sized else 1) * max(place(value.tensors)[1] for value in values)


def _learn(program: ReferenceProgram, draws: list[Tensors], probe: Value, expected: Value) -> Variation:
    if {len(draw) for draw in draws} != {len(probe.tensors)}:
        return Variation(())
    is_steady = _is_steady(program, probe, expected)

    def accepts(tensors: Tensors) -> bool:
        return _accepts(program, Value(probe.tree, tensors), expected, is_steady)

    def output_on(tensors: Tensors) -> Value | None:
        return _forward_or_none(program, Value(probe.tree, tensors))

    def agree(first_inputs: Tensors, second_inputs: Tensors) -> bool:
        first, second = map(output_on, (first_inputs, second_inputs))
        return first is not None and second is not None and expected.is_floating and first.agrees(second)

    # Asked of a small row only (`Variation.small`): it must matter more than rounding does.
    def differ(first_inputs: Tensors, second_inputs: Tensors) -> bool:
        first, second = map(output_on, (first_inputs, second_inputs))
        return first is not None and second is not None and first.is_apart(second)

    def accepts_extremes(tensors: Tensors) -> bool:
        """Like `accepts`, but an output of masks or integers may be constant, as it is for a mask that is all unset."""
        return _accepts(
            program, Value(probe.tree, tensors), expected, is_steady, may_be_constant=not expected.is_floating
        )

    def draw_more() -> Tensors | None:
        """Draw again, until there are so many draws, or so many bytes, that further ones would tell no more."""
        count = next(counts)
        if count >= _MOST_DRAWS or count * probe.nbytes > _DRAWN_BYTES:
            return None
        with contextlib.suppress(TaskError):
            draw = program.draw(seed_of(PROBE, b"%d" % count)).tensors
            return draw if len(draw) == len(probe.tensors) else None
        return None

    counts = itertools.count(len(draws))
    spikes = _sizes_of_spikes(probe, expected)
    return learn(
        draws,
        accepts,
        is_steady=is_steady,
        agree=agree,
        accepts_extremes=accepts_extremes,
        draw_more=draw_more,
        spikes=spikes,
        differ=differ,
    )


def _sizes_of_spikes(probe: Value, expected: Value) -> tuple[float, ...]:
    """Return sizes of large elements to try; none where every output's tolerance is that of a wider type than half."""
    written = [tensor.numel() for tensor in expected.tensors if tensor.dtype in HALF]
    read = max((tensor.numel() for tensor in probe.tensors if tensor.is_floating_point()), default=0)
    return sizes_of_spikes(read, max(written)) if written else ()


def _accepts(
    program: ReferenceProgram, inputs: Value, usual: Value, is_steady: bool, may_be_constant: bool = False
) -> bool:
    """Whether outputs on `inputs` do not degrade from the usual ones; if those are steady, these must be too."""
    with contextlib.suppress(TaskError):
        output = program.forward_if_it_survives(inputs)
        if output.is_worse(usual, may_be_constant):
            return False
        return not is_steady or (_is_steady(program, inputs, output) and not depends_on_ties(program, inputs, output))
    return False


def _may_crash(program: ReferenceProgram, probe: Value) -> bool:
    """Whether integers out of range end the process; on a GPU, which has its own checks, that is not asked.

    One child tries them all; where it ends, each has a child of its own, since a fault of one may show in the next.
    """
    runs = [partial(program.forward, Value(probe.tree, tensors)) for tensors in beyond(probe.tensors)]
    # CUDA does not survive a fork; its ops raise an assertion on the device instead of ending the process.
    if program.device.name != "cpu" or not runs or survives(*runs):
        return False
    return not all(map(survives, runs))


def _is_steady(program: ReferenceProgram, inputs: Value, output: Value) -> bool:
    """Like `holds_steady`, but False where the program fails."""
    with contextlib.suppress(TaskError):
        return holds_steady(program, inputs, output)
    return False


def _is_switchable(program: ReferenceProgram, probe: Value, expected: Value) -> bool:
    """Whether outputs on the probe are the same in train and eval mode; False for a program that is not a module."""
    if not isinstance(program.model, torch.nn.Module):
        return False
    with contextlib.suppress(TaskError), switched(program.model):
        output = program.forward(probe)
        return output.tree == expected.tree and all(map(same_bytes, output.tensors, expected.tensors))
    return False


def _mutates(program: ReferenceProgram, probe: Value) -> bool:
    copy = probe.copy()
    program.forward_in_place(copy)
    return not all(map(same_bytes, copy.tensors, probe.tensors))


def _smallest_scale(program: ReferenceProgram, variation: Variation, probe: Value, expected: Value) -> float | None:
    """Return the smallest scale (`Traits`) that tolerates the noise of outputs in usual and varied trials."""
    dtypes = {tensor.dtype for tensor in expected.tensors if tensor.is_floating_point()}
    if len(dtypes) != 1:
        return None
    # Two varied ones, since each draws its scales anew.
    kinds: list[Kind] = ["varied", "varied", "large", *ENDS]
    varied = [Value(probe.tree, variation.apply(probe.tensors, seed, kind)) for seed, kind in enumerate(kinds)]
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    for inputs in (probe, *varied):
        with contextlib.suppress(TaskError):
            output, jittered_output = (
                program.forward_if_it_survives(inputs),
                program.forward(Value(inputs.tree, jittered(inputs.tensors))),
            )
            pairs += zip(output.tensors, jittered_output.tensors, strict=True)
    return next((scale for scale in SHARP.get(dtypes.pop(), ()) if _has_room(pairs, scale)), None)


def _has_room(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], scale: float) -> bool:
    def exaggerated(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first + _NOISE_ROOM * (second - first) if first.is_floating_point() else second

    # Exaggerated, since a candidate's rounding differs from the reference's by more than one jitter shows.
    def fits(first: torch.Tensor, second: torch.Tensor) -> bool:
        agreement = compare(first, exaggerated(first, second), "scaled", scale)
        return agreement.ok or agreement.has_few

    return all(first.shape == second.shape and fits(first, second) for first, second in pairs)


def _moves_values(program: ReferenceProgram, probe: Value) -> bool:
    inputs = probe.copy()
    moved = MovedValues([*inputs.tensors, *state_of(program.model).values()])
    with moved:
        output = program.forward_in_place(inputs)
    return moved.include(output.tensors, probe.tensors)


def _flags(program: ReferenceProgram, preparation: Preparation, probe: Value, expected: Value) -> list[str]:
    """Return flags for inputs and outputs that are the same in every trial, and for terms without effect."""
    # Trials of every kind: an output that is the same in all of them rewards any program that returns it.
    trials = [draw_trial(program, preparation, _FLAGS, number, kind) for number, kind in enumerate(KINDS)]
    inputs, outputs = [probe, *(trial.inputs for trial in trials)], [expected, *(trial.expected for trial in trials)]
    if not all(expected.agrees(output) or expected.is_same_constant(output) for output in outputs):
        terms = _ineffective_terms(program, preparation, list(zip(inputs, outputs, strict=True))[: 1 + _DRAWS])
        return terms + [f"{FIXED_INPUT}{number}" for number in _fixed(inputs)]
    constant = all(value.tree == probe.tree for value in inputs) and len(_fixed(inputs)) == len(probe.tensors)
    return ["constant_inputs"] * constant + ["constant_output"]


def _fixed(inputs: list[Value]) -> list[int]:
    """Return the numbers of the tensors that are the same in each of these inputs."""
    if len({len(value.tensors) for value in inputs}) != 1:
        return []
    return [
        number
        for number, copies in enumerate(zip(*(value.tensors for value in inputs), strict=True))
        if unchanged(copies)
    ]


def _ineffective_terms(
    program: ReferenceProgram, preparation: Preparation, pairs: list[tuple[Value, Value]]
) -> list[str]:
    def comes_out(number: int, output: Value | None) -> bool:
        return output is not None and pairs[number][1].agrees(output, preparation.traits.smallest_scale)

    runs = [partial(_forward_or_none, program, inputs) for inputs, _ in pairs]
    return sorted(
        f"{INSENSITIVE}{name.partition('::')[2]}" for name in ineffective(preparation.events, runs, comes_out)
    )


def _forward_or_none(program: ReferenceProgram, inputs: Value) -> Value | None:
    """Return the program's outputs, or None where it fails."""
    with contextlib.suppress(TaskError):
        return program.forward_if_it_survives(inputs)
    return None
