# SPDX-License-Identifier: Apache-2.0
"""Torch's switches for products of float32: set, given back, and never left in a state that torch refuses to read."""

import subprocess
import sys

import pytest
import torch

from tests.env.programs import reference
from verl_kernel.env.comparison import tf32
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task

OLD = {
    "matmul": (torch.backends.cuda.matmul, "allow_tf32"),
    "convolution": (torch.backends.cudnn, "allow_tf32"),
}


def allowed() -> tuple[bool, ...]:
    """What any program may read; torch raises here where old and new switches contradict each other."""
    return tuple(getattr(place, name) for place, name in OLD.values())


def chosen() -> tuple:
    return (*allowed(), torch.get_float32_matmul_precision(), *tf32._read())


@pytest.fixture(autouse=True)
def kept():
    before = tf32._read()
    yield
    tf32._write(before)


@pytest.mark.parametrize("mode", ["ieee", "tf32"])
@pytest.mark.parametrize("earlier", ["highest", "high", "medium"])
def test_the_mode_holds_inside_and_what_was_comes_back(mode, earlier):
    torch.set_float32_matmul_precision(earlier)
    torch.backends.cudnn.allow_tf32 = earlier == "high"
    before = chosen()
    with tf32.precision(mode):
        assert allowed() == (mode == "tf32",) * 2
        assert torch.get_float32_matmul_precision() == ("high" if mode == "tf32" else "highest")
    assert chosen() == before


def test_it_comes_back_after_a_failure():
    before = chosen()
    with pytest.raises(ZeroDivisionError), tf32.precision("tf32"):
        raise ZeroDivisionError
    assert chosen() == before


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch has no such switches before 2.9")
def test_newer_switches_are_set_one_by_one():
    torch.backends.cudnn.conv.fp32_precision, torch.backends.cudnn.rnn.fp32_precision = "ieee", "tf32"
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    cuda, cudnn, onednn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    for mode in ("ieee", "tf32"):
        with tf32.precision(mode):
            assert {cuda.matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision} == {mode}
            assert {getattr(onednn, op).fp32_precision for op in ("matmul", "conv", "rnn")} == {"ieee"}
            assert allowed() == (mode == "tf32",) * 2
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("ieee", "tf32")
    assert onednn.matmul.fp32_precision == "bf16"


def test_it_says_nothing():
    """Torch warns once a process of the old switches, which would end up in what a candidate prints."""
    text = "from verl_kernel.env.comparison import tf32\ntf32.use('tf32')\nwith tf32.precision('ieee'): pass"
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


LIBRARY = """
        if {switch}:  # as cuBLAS and cuDNN do it
            x = (x.view(torch.int32) & -8192).view(torch.float32)
        return x
"""
CHOOSES = "torch.set_float32_matmul_precision('high'); torch.backends.cudnn.allow_tf32 = True"


def prepared(device, forward: str, start: str = "pass") -> Reference:
    """A reference with statements in its `forward` and in its `__init__`."""
    source = reference("x", "torch.randn(16, 64)", members=start)
    return Reference(Task(source.replace("        return x\n", f"{forward}\n")), device)


@pytest.mark.parametrize("switch", ["torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"])
@pytest.mark.parametrize("start", ["pass", CHOOSES])
def test_expected_outputs_are_exact_in_any_process(device, switch, start):
    """A program that rounds where its library would; convolutions of cuDNN do unless they are told not to."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    task = prepared(device, LIBRARY.format(switch=switch), start)
    trial = task.trial(b"s", 0, "drawn")
    assert torch.equal(trial.expected.tensors[0], trial.inputs.tensors[0])
    assert not torch.equal(task.model(trial.inputs.tensors[0]), trial.inputs.tensors[0])  # it can tell


@pytest.mark.parametrize("start", ["pass", CHOOSES])
def test_what_a_program_chooses_reaches_no_other(device, start):
    tf32.use("ieee")
    before = chosen()
    task = prepared(device, f"        {CHOOSES}\n        return x + 0", start)
    assert chosen() == before
    task.trial(b"s", 0, "drawn")
    assert chosen() == before
