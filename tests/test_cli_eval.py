# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel eval` as a user runs it: a process, its exit code, its two streams."""

import json
import subprocess
import sys

import pytest

from verl_kernel.env.result import EvalResult, EvalStatus

REFERENCE = """
import torch
import torch.nn as nn

print("the reference talks")

class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y) * 2.0

def get_inputs():
    return [torch.randn(32, 64, device="cuda"), torch.randn(32, 64, device="cuda")]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def fused(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(o + i, tl.maximum(total, 0.0) * FACTOR, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x, y):
        print("the kernel talks")
        o = torch.empty_like(x)
        fused[(triton.cdiv(x.numel(), 1024),)](x, y, o, x.numel(), B=1024)
        return o
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("eval")
    texts = {
        "reference.py": REFERENCE,
        "good.py": KERNEL.replace("FACTOR", "2.0"),
        "wrong.py": KERNEL.replace("FACTOR", "3.0"),
        "undefined.py": KERNEL,
        "torch_only.py": "import torch\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x, y):\n        return torch.relu(x + y) * 2.0\n",
        "forbidden.py": "import os\n" + KERNEL,
        "empty.py": "",
        "broken_reference.py": REFERENCE.replace("torch.relu", "torch.rellu"),
        "no_model.py": REFERENCE.replace("class Model", "class Net"),
    }
    for name, text in texts.items():
        (root / name).write_text(text)
    (root / "binary.py").write_bytes(b"\x7fELF\x00\x00\x00")
    (root / "latin.py").write_bytes("é".encode("latin-1"))
    (root / "folder.py").mkdir()
    return root


def verl_kernel(root, *arguments):
    code = "import sys; from verl_kernel.cli import app; sys.argv[0] = 'verl-kernel'; app()"
    command = [sys.executable, "-c", code, "eval", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)


NAMES = ["good.py", "wrong.py", "undefined.py", "torch_only.py", "forbidden.py", "empty.py"]


@pytest.fixture(scope="module")
def judged(files):
    return verl_kernel(files, "reference.py", *NAMES, "--json", "--seed", "3", "--device", "cpu")


def test_json_lines_in_order(judged):
    assert judged.returncode == 0, judged.stderr
    results = [EvalResult.model_validate_json(line) for line in judged.stdout.splitlines()]
    assert [result.kernel for result in results] == NAMES
    assert [result.status for result in results[:3]] == [
        EvalStatus.OK,
        EvalStatus.INCORRECT,
        EvalStatus.COMPILE_ERROR,
    ]
    good, *bad = results
    assert good.rewarded and not any(result.rewarded for result in bad)
    assert good.timing_source == "simulated" and good.time_coverage == good.number_coverage == 1.0
    assert 2.5 < good.speedup < 3.5
    assert results[2].error.message.startswith("name 'FACTOR' is not defined")
    assert {result.status for result in results[4:]} == {EvalStatus.REJECTED_STATIC}


def test_a_seed_repeats_the_verdict(files, judged):
    again = verl_kernel(files, "reference.py", "wrong.py", "--json", "--seed", "3")
    first, second = json.loads(judged.stdout.splitlines()[1]), json.loads(again.stdout)
    clocks = ("stage_seconds", "queue_seconds")
    assert {key: first[key] for key in first if key not in clocks} == {
        key: second[key] for key in second if key not in clocks
    }


def test_table(files):
    done = verl_kernel(files, "reference.py", "good.py", "wrong.py")
    assert done.returncode == 0, done.stderr
    for text in ("good.py", "ok", "100%", "wrong.py", "incorrect", "simulated"):
        assert text in done.stdout
    assert "talks" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.py", "good.py"), "missing.py does not exist"),
        (("reference.py", "good.py", "missing.py"), "missing.py does not exist"),
        (("folder.py", "good.py"), "folder.py is a directory"),
        (("reference.py", "folder.py"), "folder.py is a directory"),
        (("binary.py", "good.py"), "binary.py is a binary file"),
        (("reference.py", "latin.py"), "latin.py is not UTF-8 text"),
        (("no_model.py", "good.py"), "no `class Model`"),
        (("empty.py", "good.py"), "is empty"),
        (("reference.py", "good.py", "--device", "tpu"), "--device is 'tpu'"),
    ],
)
def test_usage_errors_take_one_sentence(files, arguments, sentence):
    done = verl_kernel(files, *arguments, "--json")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("Error: ") and sentence in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_cuda_without_a_gpu_is_a_usage_error(files):
    done = verl_kernel(files, "reference.py", "good.py", "--device", "cuda", "--json")
    assert done.returncode == 2 and done.stdout == "" and "device cuda" in done.stderr


def test_a_reference_that_fails_is_a_usage_error(files):
    done = verl_kernel(files, "broken_reference.py", "good.py", "--json")
    assert done.returncode == 2 and done.stdout == ""
    assert "rellu" in done.stderr and "Traceback" not in done.stderr


def test_no_kernel_is_a_usage_error(files):
    assert verl_kernel(files, "reference.py").returncode == 2
