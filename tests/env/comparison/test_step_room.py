# SPDX-License-Identifier: Apache-2.0
"""Where last digits decide between two values, either is right."""

from contextlib import nullcontext

import pytest
import torch

from tests.env.programs import reference
from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.comparison.tf32_tolerance import STEP_RUNS, step_rooms
from verl_kernel.env.reference.jitter import jittered
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task

SIZE = 1 << 16


def numbers(seed=0):
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def quantised(x, kind=torch.int8):
    return torch.clamp(torch.round(x / (x.abs().amax() / 127)), -127, 127).to(kind)


def room_of(run, x):
    return step_rooms([run(x)], ([run(*jittered([x], seed))] for seed in range(STEP_RUNS)))[0]


def moved(x, by=3e-7):
    """The same numbers a little off, as another order of operations gives them: halves of steps fall either way."""
    return x * (1 + by * torch.randn(x.shape, generator=torch.Generator().manual_seed(9)))


@pytest.mark.parametrize("kind", [torch.int8, torch.float32])
def test_last_digits_decide_a_step_and_ways_of_rounding_do_not(kind):
    x, room = numbers(), room_of(quantised, numbers())
    expected, actual = quantised(x, kind), quantised(moved(x), kind)
    assert not compare(expected, actual).ok
    assert compare(expected, actual, room=room).ok
    assert not compare(expected, torch.floor(x / (x.abs().amax() / 127)).to(kind), room=room).ok


def test_a_step_away_from_its_edge_and_two_steps_are_wrong():
    x, room = numbers(), room_of(quantised, numbers())
    expected, other = quantised(x), quantised(moved(x))
    far, near = (x / (x.abs().amax() / 127) % 1 - 0.5).abs().argmax(), (expected != other).nonzero()[0, 0]
    for place, steps in ((far, 1), (near, 2 * (other[near] - expected[near]))):
        actual = expected.clone()
        actual[place] += steps
        assert not compare(expected, actual, room=room).ok


def test_what_is_smooth_has_next_to_no_room():
    room = room_of(torch.tanh, numbers())
    assert max(room.below.max(), room.above.max()) < 1e-5


@pytest.mark.parametrize(("bad", "few"), [(0, False), (1, True), (4, True), (5, False)])
def test_few_elements_are_at_most_one_in_128(bad, few):
    expected = torch.zeros(512, dtype=torch.int32)
    actual = expected.clone()
    actual[:bad] = 1
    assert compare(expected, actual).has_few == few


@pytest.mark.parametrize("outputs", [[None], [[torch.zeros(3)]]])
def test_a_failing_reference_gives_no_room(outputs):
    assert step_rooms([torch.zeros(4)], outputs) is None


QUANTISED = reference(
    "torch.clamp(torch.round(x / (x.abs().amax(-1, keepdim=True) / 127)), -127, 127).to(torch.int8)",
    f"torch.randn(16, {SIZE // 16})",
)


def test_a_reference_knows_its_steps(device):
    prepared = Reference(Task(QUANTISED), device)
    trial = prepared.trial(b"secret", 0, "drawn")
    (room,) = prepared.step_room(trial, nullcontext)
    x = moved(trial.inputs.tensors[0])
    actual = torch.clamp(torch.round(x / (x.abs().amax(-1, keepdim=True) / 127)), -127, 127).to(torch.int8)
    assert not compare(trial.expected.tensors[0], actual).ok
    assert compare(trial.expected.tensors[0], actual, room=room).ok


ROUNDED = reference(
    'torch.sqrt(torch.abs(F.gelu(x, approximate="tanh"))) * self.scale',
    f"torch.randn(16, {SIZE // 16}) * 1.6",
    members="self.scale = nn.Parameter(torch.full((1,), 1.5))",
)
"""Where x is below -4, 1 + tanh loses its digits, and a root makes the rest large."""


@pytest.fixture(scope="module")
def rounded(device):
    prepared = Reference(Task(ROUNDED), device)
    trial = prepared.trial(b"secret", 0, "drawn")
    x = trial.inputs.tensors[0].double()
    gate = torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))
    exact = ((x * gate).abs().sqrt() * prepared.state["scale"].double()).float()
    (room,) = prepared.step_room(trial, nullcontext)
    return prepared, trial, exact, room


def test_a_program_more_precise_than_the_reference_is_right(rounded):
    _, trial, exact, room = rounded
    plain = compare(trial.expected.tensors[0], exact)
    assert not plain.ok
    assert plain.has_few
    assert compare(trial.expected.tensors[0], exact, room=room).ok


@pytest.mark.parametrize("factor", [1.5, -1.0])
def test_a_program_beyond_the_exact_value_is_wrong(rounded, factor):
    _, trial, exact, room = rounded
    far = (trial.expected.tensors[0] - exact).abs() > 1e-4
    assert not compare(trial.expected.tensors[0], torch.where(far, exact * factor, exact), room=room).ok


def test_a_model_has_its_own_numbers_after_a_forward_in_float64(rounded):
    prepared, trial, _, _ = rounded
    assert prepared.model.scale.dtype == torch.float32
    assert torch.equal(prepared.output(trial.inputs).tensors[0], trial.expected.tensors[0])
