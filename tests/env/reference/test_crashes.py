# SPDX-License-Identifier: Apache-2.0
"""A reference that crashes on varied integers does so in a child."""

import os
import signal

import pytest
import torch

from tests.env.programs import reference
from verl_kernel.env import KINDS, Task
from verl_kernel.env.reference.crashes import beyond, survives
from verl_kernel.env.reference.reference import Reference

BY_ADDRESS = "ctypes.cast(x.data_ptr() + 4 * (int(i[-1]) // 2) ** 2, ctypes.POINTER(ctypes.c_float))[0] + x"
"""Reads where the last index says, without a check, as some of torch's ops do."""


@pytest.mark.parametrize(("run", "outcome"), [
    (lambda: None, True), (lambda: 1 / 0, True), (lambda: os.kill(os.getpid(), signal.SIGSEGV), False),
    (lambda: torch.ones(1000, 1000) @ torch.ones(1000, 1000), True),
])  # fmt: skip
def test_only_a_signal_is_a_crash(run, outcome):
    assert survives(run) is outcome


def test_a_child_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr("verl_kernel.env.reference.crashes._PATIENCE_S", 0.2)
    assert not survives(signal.pause)


def test_one_input_at_a_time_is_out_of_range():
    tensors = [torch.randn(3), torch.arange(4), torch.tensor(7, dtype=torch.int32), torch.ones(2, dtype=torch.bool)]
    moved = list(beyond(tensors))
    changed = [[one is other for one, other in zip(some, tensors, strict=True)].index(False) for some in moved]
    assert changed == [1, 1, 2, 2]
    assert moved[0][1].tolist()[:2] == [0, 1]
    assert moved[0][1].min() >= 0
    assert moved[0][1].max() > 1 << 19


@pytest.mark.parametrize(("result", "may_crash"), [("x[i]", False), ("x * i.sum()", False), (BY_ADDRESS, True)])
def test_what_checks_its_integers_needs_no_child(device, result, may_crash):
    text = "import ctypes\n" + reference(result, "torch.randn(50), torch.randint(0, 2, (50,))", "x, i")
    program = Reference(Task(text), device)
    assert program.preparation.traits.may_crash is may_crash
    for number, kind in enumerate(KINDS):
        program.trial(b"secret", number, kind)
