# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel eval` as a user runs it: a process, its exit code, its two streams."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.interrupts import hears_interrupts
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.reporting.verdict_table import print_verdicts, remarks

pytestmark = pytest.mark.processes

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


def _with_inputs(body):
    start, end = REFERENCE.index("    return [torch.randn"), REFERENCE.index("def get_init_inputs")
    return f"{REFERENCE[:start]}    {body}\n\n{REFERENCE[end:]}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("eval")
    texts = {
        "reference.py": REFERENCE,
        "good.py": KERNEL.replace("FACTOR", "2.0"),
        "wrong.py": KERNEL.replace("FACTOR", "3.0"),
        "unlike_shapes.py": KERNEL.replace("FACTOR", "tl.zeros([8], tl.float32)"),
        "torch_only.py": "import torch\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x, y):\n        return torch.relu(x + y) * 2.0\n",
        "forbidden.py": "import os\n" + KERNEL,
        "empty.py": "",
        "broken_reference.py": REFERENCE.replace("torch.relu", "torch.rellu"),
        "no_model.py": REFERENCE.replace("class Model", "class Net"),
        "no_inputs.py": REFERENCE.replace("def get_inputs", "def inputs"),
        "raising.py": _with_inputs("raise ValueError('no data today')"),
        "nothing.py": _with_inputs("pass"),
        "no_tensors.py": _with_inputs("return [1, 2.0]"),
        "needs_gpu.py": _with_inputs("return [torch.zeros(torch.cuda.mem_get_info()[0] * 0 + 1)]"),
        "slow.py": _with_inputs("import time; time.sleep(60)"),
        "no_python.py": "class Model(nn.Module) pass",
    }
    for name, text in texts.items():
        (root / name).write_text(text)
    (root / "binary.py").write_bytes(b"\x7fELF\x00\x00\x00")
    (root / "latin.py").write_bytes("é".encode("latin-1"))
    (root / "folder.py").mkdir()
    (root / "large.py").write_bytes(b"#" * (5 << 20))
    (root / "again.py").symlink_to("good.py")
    (root / "loop.py").symlink_to("loop.py")
    return root


def verl_kernel(root, *arguments):
    code = "import sys; from verl_kernel.cli import app; sys.argv[0] = 'verl-kernel'; app()"
    command = [sys.executable, "-c", code, "eval", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)


ONE_POOL = (
    "from contextlib import nullcontext\nfrom verl_kernel import env\nmake, pools = env.LocalPool, {}\n"
    "def once(*key):\n"
    "    if key not in pools: pools[key] = make(*key)\n"
    "    return nullcontext(pools[key])\n"
    "env.LocalPool = once\n"
)
"""Commands with the same options share a pool: starting one takes seconds."""


def in_one_process(root, commands, before=""):
    """Exit code, standard output and standard error of several commands, run one after another in one process."""
    code = before + (
        "import json, os, sys, tempfile\nfrom verl_kernel.cli import app\nanswers = []\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    kept, files = [os.dup(1), os.dup(2)], [tempfile.TemporaryFile('w+') for _ in 'oe']\n"
        "    for fd, file in zip((1, 2), files): os.dup2(file.fileno(), fd)\n"
        "    sys.argv, code = ['verl-kernel', 'eval', *arguments], 0\n"
        "    try: app()\n"
        "    except SystemExit as exc: code = exc.code\n"
        "    sys.stdout.flush(); sys.stderr.flush()\n"
        "    for fd, old in zip((1, 2), kept): os.dup2(old, fd)\n"
        "    answers.append([code, *[file.seek(0) or file.read() for file in files]])\n"
        "print(json.dumps(answers), flush=True)\nos._exit(0)\n"
    )
    command = [sys.executable, "-c", code, json.dumps(commands)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NAMES = ["good.py", "wrong.py", "unlike_shapes.py", "torch_only.py", "forbidden.py", "empty.py"]


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
    assert good.rewarded
    assert not any(result.rewarded for result in bad)
    assert [json.loads(line)["rewarded"] for line in judged.stdout.splitlines()] == [True] + 5 * [False]
    assert good.timing_source == "simulated"
    assert good.time_coverage == good.number_coverage == 1.0
    assert 2.5 < good.speedup < 3.5
    assert "Cannot make_shape_compatible" in results[2].error.message
    assert {result.status for result in results[4:]} == {EvalStatus.REJECTED_STATIC}


def test_launches_are_compiled_unless_switched_off(files, judged):
    good = EvalResult.model_validate_json(judged.stdout.splitlines()[0])
    assert good.compiled_for == "sm_90"
    assert all(kernel.registers for kernel in good.compiled_kernels)
    done = verl_kernel(files, "reference.py", "good.py", "--json", "--compile-for", "off")
    assert EvalResult.model_validate_json(done.stdout).compiled_for is None


def test_kernels_for_amd_are_told_with_what_they_use(files):
    done = verl_kernel(files, "reference.py", "good.py", "--compile-for", "sm_90,gfx942", "--gpu-profile", "mi300x")
    assert done.returncode == 0, done.stderr
    nvidia, amd = (line for line in done.stdout.splitlines() if ", compiled for " in line)
    assert nvidia.startswith("good.py: fused, compiled for sm_90: ")
    assert amd.startswith("good.py: fused, compiled for gfx942: ")
    for words in (
        " registers, 0 of them AGPRs, ",
        " SGPRs, 0 bytes spilled, ",
        " blocks a compute unit, no matrix instr",
    ):
        assert words in amd
        assert words not in nvidia
    assert "times: simulated_unvalidated" in done.stdout


def test_what_the_compiler_refuses_is_refused_by_its_line(files):
    (files / "global.py").write_text("FACTOR = 2.0\n" + KERNEL)
    done = verl_kernel(files, "reference.py", "global.py", "--json")
    refused = EvalResult.model_validate_json(done.stdout)
    assert refused.status is EvalStatus.COMPILE_ERROR
    assert "global variable FACTOR" in refused.error.message


def test_a_seed_repeats_the_verdict(files, judged):
    again = verl_kernel(files, "reference.py", "wrong.py", "--json", "--seed", "3")
    first, second = json.loads(judged.stdout.splitlines()[1]), json.loads(again.stdout)
    clocks = ("stage_seconds", "queue_seconds")
    assert {key: first[key] for key in first if key not in clocks} == {
        key: second[key] for key in second if key not in clocks
    }


def test_a_kernel_that_is_no_text_does_not_stop_the_others(files):
    names = ["latin.py", "good.py", "binary.py", "zeros.py"]
    (files / "zeros.py").write_bytes(b"x = 0\0\n")
    done = verl_kernel(files, "reference.py", *names, "--json", "--num-judges", "2", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    latin, good, *binary = [EvalResult.model_validate_json(line) for line in done.stdout.splitlines()]
    assert [result.kernel for result in (latin, good, *binary)] == names
    assert good.status is EvalStatus.OK
    assert {result.status for result in (latin, *binary)} == {EvalStatus.LOAD_ERROR}
    assert len({result.task_hash for result in (latin, good, *binary)}) == 1
    assert good.task_hash
    assert "not UTF-8 text (byte 0)" in latin.error.message
    assert all("is a binary file" in result.error.message for result in binary)


def test_table(files):
    done = verl_kernel(files, "reference.py", "good.py", "wrong.py")
    assert done.returncode == 0, done.stderr
    for text in ("good.py", "ok", "100%", "wrong.py", "incorrect", "simulated"):
        assert text in done.stdout
    assert "talks" not in done.stdout


USAGE = {
    "missing.py good.py": "missing.py does not exist",
    "reference.py good.py missing.py": "missing.py does not exist",
    "folder.py good.py": "folder.py is a directory",
    "reference.py folder.py": "folder.py is a directory",
    "binary.py good.py": "binary.py is a binary file",
    "latin.py good.py": "latin.py is not UTF-8 text",
    "reference.py large.py": "large.py is larger than 4 MB",
    "reference.py loop.py": "loop.py cannot be read",
    "reference.py good.py good.py": "good.py is named twice",
    "reference.py good.py again.py": "again.py is named twice",
    "no_model.py good.py": "no `class Model`",
    "no_inputs.py good.py": "no `get_inputs()`",
    "no_python.py good.py": "no_python.py is not valid Python",
    "empty.py good.py": "is empty",
    "reference.py good.py --device tpu": "--device is 'tpu'; it must be one of auto, cpu, cuda",
    "reference.py good.py --static-check lax": "--static-check is 'lax'; it must be one of strict, coverage, off",
    "reference.py good.py --tolerance none": "--tolerance is 'none'; it must be one of scaled, parity",
    "reference.py good.py --float32 half": "--float32 is 'half'; it must be one of ieee, tf32",
    "reference.py good.py --trials 0": "--trials is 0; it must be a whole number of at least 1",
    "reference.py good.py --compile-for sm_70": "--compile-for is 'sm_70'; it must be one of off, sm_80, sm_86, sm_89",
    "reference.py good.py --compile-for sm_90,gfx94": "--compile-for is ['sm_90', 'gfx94']; did you mean gfx942? ",
    "reference.py good.py --gpu-profile abacus": "--gpu-profile is 'abacus'; it must be one of h100, a100",
    "reference.py good.py --num-judges 0": "--num-judges is 0",
    "reference.py good.py --timeout 0": "--timeout is 0.0; it must be a finite number of at least 0.1",
}
UNFIT = {
    "broken_reference.py": "rellu",
    "raising.py": "get_inputs() raised ValueError: no data today",
    "nothing.py": "get_inputs() returns nothing where a list of the model's inputs belongs",
    "no_tensors.py": "get_inputs() returns no tensor",
    "needs_gpu.py": "it needs a GPU: judge it on a machine that has one",
    "slow.py": "it takes longer than --timeout = 2 s",
}


def assert_one_sentence(answer, sentence, code=2):
    returned, stdout, stderr = answer
    assert returned == code, answer
    assert stdout == "", answer
    assert stderr.startswith("Error: "), stderr
    assert sentence in stderr, stderr
    assert stderr.count("\n") == 1
    assert "Traceback" not in stderr


def test_usage_errors_take_one_sentence(files):
    answers = in_one_process(files, [[*arguments.split(), "--json"] for arguments in USAGE])
    for answer, sentence in zip(answers, USAGE.values(), strict=True):
        assert_one_sentence(answer, sentence)


def test_references_that_cannot_serve_take_one_sentence(files):
    common = ["good.py", "--json", "--device", "cpu", "--timeout", "2"]
    answers = in_one_process(files, [[name, *common] for name in UNFIT], ONE_POOL)
    for answer, sentence in zip(answers, UNFIT.values(), strict=True):
        assert_one_sentence(answer, sentence)


def test_a_file_that_may_not_be_read(files):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (files / "secret.py").write_text("")
    (files / "secret.py").chmod(0)
    (answer,) = in_one_process(files, [["reference.py", "secret.py"]])
    assert_one_sentence(answer, "secret.py cannot be read (Permission denied)")


def test_cuda_without_a_gpu_is_a_usage_error(files):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    (answer,) = in_one_process(files, [["reference.py", "good.py", "--device", "cuda", "--json"]])
    assert_one_sentence(answer, "device cuda")


def test_options_reach_the_gym(files):
    names = ["good.py", "torch_only.py", "forbidden.py"]
    options = "--device cpu --static-check off --tolerance parity --trials 2 --gpu-profile a100 --num-judges 2 --seed 3"
    options += " --float32 tf32"
    done = verl_kernel(files, "reference.py", *names, "--json", *options.split())
    assert done.returncode == 0, done.stderr
    good, torch_only, imported = [EvalResult.model_validate_json(line) for line in done.stdout.splitlines()]
    assert [result.kernel for result in (good, torch_only, imported)] == names
    assert (good.trials.total, good.kernel_ms.n) == (2, 1)  # that of the other mode is not timed
    assert good.env["gpu_profile"] == "a100"
    assert good.env["float32"] == "tf32"
    assert torch_only.status is EvalStatus.DECOY
    assert imported.status is EvalStatus.COMPILE_ERROR


def test_an_interrupted_run_prints_what_was_judged(files):
    hanging = KERNEL.replace("FACTOR", "2.0").replace('print("the kernel talks")', "while True: pass")
    (files / "hanging.py").write_text(hanging)
    words = ["eval", "reference.py", "good.py", "hanging.py", "--device", "cpu", "--timeout", "600", "--json"]
    command = [sys.executable, "-m", "verl_kernel", *words]
    with subprocess.Popen(
        command, cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts
    ) as process:
        assert json.loads(process.stdout.readline())["status"] == "ok"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "Interrupted: 1 of 2 kernels judged.\n"


def test_no_kernel_is_a_usage_error(files):
    assert verl_kernel(files, "reference.py").returncode == 2


def test_a_poor_task_is_named_beside_its_kernels():
    result = EvalResult(
        task_id="t", status=EvalStatus.OK, correctness=True, task_flags=("constant_output",), fallback_ops={"relu": 1}
    )
    assert remarks(result) == "task: constant_output (never rewarded); torch: 1 relu"
    assert not result.rewarded
    assert result.model_copy(update={"task_flags": ("constant_inputs",)}).rewarded


def test_remarks_tell_flags_missing_prices_and_what_torch_does():
    result = EvalResult(
        task_id="t", status=EvalStatus.OK, correctness=True, hack_flags=("only_moves",),
        unpriced_ops=("aten::_fft_r2c",), fallback_ops={"aten::max.dim": 1},
    )  # fmt: skip
    said = remarks(result)
    assert "no time: no price for aten::_fft_r2c" in said
    assert "only_moves (its kernels only copy what torch computes)" in said
    assert "torch: 1 aten::max.dim" in said


def test_a_narrow_terminal_cuts_figures_but_not_help():
    message = "line 9, in kernel fused: a load lies outside the tensors of the launch, at element 786240 of x: mask it"
    error = EvalError(stage="trials", type="OutOfBounds", message=message)
    result = EvalResult(task_id="t", kernel="a" * 60 + ".py", status=EvalStatus.UNSAFE, error=error)
    console = Console(width=60, record=True, file=io.StringIO(), force_terminal=True)
    print_verdicts("reference.py", [result], console)
    text = console.export_text(clear=False)
    assert "…" in text.split("OutOfBounds")[0]
    assert max(map(len, text.splitlines())) <= 60
    assert message in " ".join(text.split())
    assert "\x1b[31munsafe" in console.export_text(styles=True)
