# SPDX-License-Identifier: Apache-2.0
"""Equal numbers: every order of them is right, and no trial but one that was drawn hangs on it."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.env.programs import reference
from verl_kernel.env import KINDS, Task
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.ties import TiesDecided, has_choices

guard = nullcontext
CHOICES = {
    "topk": lambda x: torch.topk(x, 3).indices,
    "the smallest": lambda x: torch.topk(x, 3, largest=False).indices,
    "topk of columns": lambda x: torch.topk(x, 2, dim=0).indices.mT,
    "sort": lambda x: torch.sort(x, descending=True).indices,
    "argsort": lambda x: torch.argsort(x),
    "argmax": lambda x: x.argmax(-1, keepdim=True),
    "argmin": lambda x: x.argmin(-1, keepdim=True),
    "max": lambda x: x.max(-1, keepdim=True).indices,
    "min of columns": lambda x: x.min(0, keepdim=True).indices.mT,
    "kthvalue": lambda x: x.kthvalue(2, keepdim=True).indices,
}
numbers = st.lists(st.integers(0, 3), min_size=20, max_size=20).map(lambda flat: torch.tensor(flat).float().view(4, 5))
ROUTER = "(lambda w, i: (w / w.sum(-1, keepdim=True), i.to(torch.int32)))(*torch.topk(torch.softmax(x, -1), 2, dim=-1))"


def chosen(name, x, last):
    with TiesDecided(last):
        return CHOICES[name](x)


@pytest.mark.parametrize("name", CHOICES)
@given(numbers)
def test_what_is_chosen_is_as_large_whichever_it_is(name, x):
    rows = x.mT if "columns" in name else x
    values = [rows.gather(-1, chosen(name, x, last)) for last in (False, True)]
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[0], rows.gather(-1, CHOICES[name](x)))


@pytest.mark.parametrize("name", CHOICES)
def test_of_equal_numbers_the_first_or_the_last_is_chosen(name):
    x = torch.zeros(5, 5)
    first, last = chosen(name, x, False), chosen(name, x, True)
    assert torch.equal(first + last, torch.full_like(first, 4))


@given(numbers)
def test_a_stable_sort_promises_its_order(x):
    with TiesDecided(True):
        assert torch.equal(x.sort(stable=True).indices, torch.sort(x, stable=True).indices)
    assert torch.equal(chosen("argmax", x.reshape(-1), True), 19 - x.reshape(-1).flip(0).argmax(-1, keepdim=True))


def test_varied_trials_of_a_router_hang_on_no_tie(device):
    task = Task(reference(ROUTER, "torch.randn(200, 8)", "x"))
    program = Reference(task, device)
    for number, kind in enumerate(KINDS * 3):
        trial = program.trial(b"secret", number, kind)
        assert all(torch.equal(trial.expected.tensors[1], other[1]) for other in program.tied_outputs(trial, guard))


def test_a_tie_that_is_drawn_has_two_right_answers(device):
    task = Task(reference("x.argmax(-1)", "torch.randint(0, 3, (50, 8)).float()", "x"))
    program = Reference(task, device)
    trial = program.trial(b"secret", 0, "drawn")
    others = {tuple(tensors[0].tolist()) for tensors in program.tied_outputs(trial, guard)}
    assert tuple(trial.inputs.tensors[0].argmax(-1).tolist()) in others
    assert len(others) == 2


def test_a_program_without_choices_is_run_no_more_often(device):
    program = Reference(Task(reference("x.exp()", "torch.randn(5)", "x")), device)
    assert not has_choices(program.events)
    assert not list(program.tied_outputs(program.trial(b"secret", 0, "drawn"), guard))
