# SPDX-License-Identifier: Apache-2.0
"""Exponents that a scan in chunks would have to add, and the inputs of a reference that multiplies exponentials."""

import pytest
import torch
import torch.nn.functional as F

from tests.env.programs import reference
from verl_kernel.env import KINDS, Task
from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.reference.cancellation import rounded_apart
from verl_kernel.env.reference.reference import Reference

X = torch.linspace(0, 4, 16)
LONG = {
    "a recurrence": lambda: (X * -999).exp() * ((X * -999).exp() * X + X),
    "one of slices": lambda: (X * -999).exp()[1] * (X * -999).exp()[2] * X,
    "infinite ones": lambda: (X * -1e30 * 1e30).exp() * X.exp_(),
    "a product along an axis": lambda: (X * -999).exp().cumprod(0),
}
SHORT = {
    "short ones": lambda: X.neg().exp() * X.neg().exp(),
    "a sigmoid": lambda: X / (1 + (X * -999).exp()),
    "a softmax": lambda: (X * 1e6 - X.max() * 1e6).exp() / (X * 1e6 - X.max() * 1e6).exp().sum() * X,
    "attention": lambda: F.scaled_dot_product_attention(*[X.view(1, 1, 4, 4) * 999] * 3),
    "one beside a product": lambda: (X * 999).exp() + X * X,
}


@pytest.mark.parametrize(("make", "is_long"), [
    *((make, True) for make in LONG.values()), *((make, False) for make in SHORT.values()),
], ids=[*LONG, *SHORT])  # fmt: skip
def test_only_products_of_exponentials_have_exponents_to_add(make, is_long):
    with rounded_apart() as mode:
        make()
    assert mode.adds_long_exponents is is_long


SCAN = """\
        decay, state, rows = -torch.exp(a), torch.zeros(b.shape[1], x.shape[1]), []
        dt = nn.functional.softplus(dt)
        for i in range(x.shape[0]):
            state = state * torch.exp(dt[i] * decay) + dt[i] * b[i][:, None] * x[i][None]
            rows.append(c[i] @ state)
        return torch.stack(rows)"""
INPUTS = "torch.randn(32, 8), torch.randn(32, 1), torch.randn(1), torch.randn(32, 16), torch.randn(32, 16)"


def in_chunks(x, dt, a, b, c, size=16):
    """The scan as Mamba-2 does it, and with a softplus that rounds small numbers to zero as Triton's users write it."""
    dt, rows = (1 + dt.exp()).log().where(dt <= 20, dt)[:, 0], []
    state = torch.zeros(b.shape[1], x.shape[1])
    for start in range(0, x.shape[0], size):
        part = slice(start, start + size)
        sums = (dt[part] * -a.exp()).cumsum(0)
        weights = (sums[:, None] - sums[None]).exp().tril() * dt[part]
        rows.append((c[part] @ b[part].T * weights) @ x[part] + sums.exp()[:, None] * (c[part] @ state))
        grown = (b[part] * ((sums[-1] - sums).exp() * dt[part])[:, None]).T @ x[part]
        state = state * sums[-1].exp() + grown
    return torch.cat(rows)


WRONG = {
    "large x": lambda x, dt, a, b, c: in_chunks(x.clamp(max=500), dt, a, b, c),
    "negative b": lambda x, dt, a, b, c: in_chunks(x, dt, a, b.clamp(min=-500), c),
    "half precision": lambda x, dt, a, b, c: in_chunks(x, dt, a, b.half().float() * c.half().float(), c),
    "large c": lambda x, dt, a, b, c: in_chunks(x, dt, a, b, c.half().clamp(-100, 100).float()),
}


@pytest.fixture(scope="module")
def scan(device):
    source = reference("0", INPUTS, "x, dt, a, b, c").replace("        return 0", SCAN)
    assert SCAN in source
    return Reference(Task(source), device)


def agrees(task, program, kind, number):
    trial = task.trial(b"s", number, kind)
    expected, actual = trial.expected.tensors[0], program(*(tensor.clone() for tensor in trial.inputs.tensors))
    return compare(expected, actual, smallest_scale=task.smallest_scale).ok


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_in_chunks_is_right_on_inputs_of_every_kind(scan, kind):
    assert all(agrees(scan, in_chunks, kind, number) for number in range(8))


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_one_that_is_wrong_for_large_numbers_is_found(scan, program):
    assert not all(agrees(scan, program, kind, 0) for kind in KINDS)


def test_a_tensor_that_is_exponentiated_holds_no_other_back(scan):
    ends = dict(scan.preparation.traits.variation.ends)
    assert ends[1, 1, 1, 1, 1] == (1024.0, 1.0, 1.0, 1024.0, 1024.0)


def test_a_sigmoid_that_is_wrong_for_large_numbers_is_found(device):
    task = Reference(Task(reference("x / (1 + torch.exp(-x))", "torch.randn(16, 64)")), device)
    assert agrees(task, F.silu, "positive", 0)
    assert not agrees(task, lambda x: x * x.exp() / (1 + x.exp()), "positive", 0)


def test_outputs_that_have_vanished_are_no_trial(device):
    task = Reference(Task(reference("F.softplus(x) * y", "torch.randn(16, 64), torch.randn(16, 64)", "x, y",
                                    before="import torch.nn.functional as F")), device)  # fmt: skip
    x, y = task.trial(b"s", 0, "negative").inputs.tensors
    assert F.softplus(x).max() > 1e-9
    assert y.max() < -512


def test_exponents_that_are_long_as_drawn_may_be_so_in_trials(device):
    source = reference("torch.exp(-x * x * 99) * torch.exp(-y * y)", "torch.randn(16, 64), torch.randn(16, 64)", "x, y")
    task = Reference(Task(source), device)
    assert task.preparation.traits.adds_long_exponents
    assert task.preparation.traits.variation.high == 8.0


def test_a_window_on_fading_attention_is_found(device):
    """Keys far away matter where scores are large; infinite scores of hidden keys must not keep large ones away."""
    before = "FAR = (torch.arange(96)[:, None] - torch.arange(96)).float()"
    result = "torch.softmax((x @ y.T - FAR).masked_fill(FAR < 0, -torch.inf), -1) @ y"
    inputs = "torch.randn(96, 16), torch.randn(96, 16)"
    task = Reference(Task(reference(result, inputs, "x, y", before=before)), device)
    far = (torch.arange(96)[:, None] - torch.arange(96)).float()

    def windowed(x, y, width=96):
        hidden = (far < 0) | (far > width)
        return torch.softmax((x @ y.T - far).masked_fill(hidden, -torch.inf), -1) @ y

    assert all(agrees(task, windowed, kind, 0) for kind in KINDS)
    assert agrees(task, lambda x, y: windowed(x, y, 48), "drawn", 0)
    assert not all(agrees(task, lambda x, y: windowed(x, y, 48), kind, number) for kind in KINDS for number in range(5))
