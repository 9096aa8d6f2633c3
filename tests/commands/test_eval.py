# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel eval` as a user runs it: a process, its exit code, its two streams."""

import functools
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.recorded import OK, WRONG, timed
from tests.commands.lines import assert_one_sentence, in_a_process
from tests.env.programs import program_of, reference
from tests.env.test_sizes import task
from tests.interrupts import hears_interrupts
from verl_kernel.commands.eval import FAIL_ON
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.env.size_verdicts import joined
from verl_kernel.reporting.verdict_table import print_verdicts, remarks

pytestmark = pytest.mark.processes

DRAWN = 'torch.randn(32, 64, device="cuda")'
REFERENCE = reference(
    "torch.relu(x + y) * 2.0", f"{DRAWN}, {DRAWN}", arguments="x, y", before='print("the reference talks")\n'
)
KERNEL = program_of("""
@triton.jit
def fused(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(o + i, tl.maximum(total, 0.0) * FACTOR, mask=i < n)
def forward(self, x, y):
    print("the kernel talks")
    o = torch.empty_like(x)
    fused[(triton.cdiv(x.numel(), 1024),)](x, y, o, x.numel(), B=1024)
    return o
""")


def _with_inputs(body):
    start, end = REFERENCE.index("    return [torch.randn"), REFERENCE.index("def get_init_inputs")
    return f"{REFERENCE[:start]}    {body}\n\n{REFERENCE[end:]}"


TEXTS = {
    "reference.py": REFERENCE,
    "good.py": KERNEL.replace("FACTOR", "2.0"),
    "wrong.py": KERNEL.replace("FACTOR", "3.0"),
    "unlike_shapes.py": KERNEL.replace("FACTOR", "tl.zeros([8], tl.float32)"),
    "torch_only.py": "import torch\nclass ModelNew(torch.nn.Module):\n"
    "    def forward(self, x, y):\n        return torch.relu(x + y) * 2.0\n",
    "forbidden.py": "import os\n" + KERNEL,
    "empty.py": "",
    "global.py": "FACTOR = 2.0\n" + KERNEL,
    "hanging.py": KERNEL.replace("FACTOR", "2.0").replace('print("the kernel talks")', "while True: pass"),
    "broken_reference.py": REFERENCE.replace("torch.relu", "torch.rellu"),
    "needs_gpu.py": _with_inputs("return [torch.zeros(torch.cuda.mem_get_info()[0] * 0 + 1)]"),
    "slow.py": _with_inputs("import time; time.sleep(60)"),
}
BYTES = {"binary.py": b"\x7fELF\x00\x00\x00", "latin.py": "é".encode("latin-1"), "zeros.py": b"x = 0\0\n"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("eval")
    for name, text in TEXTS.items():
        (root / name).write_text(text)
    for name, data in BYTES.items():
        (root / name).write_bytes(data)
    return root


IN_ONE_PROCESS = """
import json, os, sys, tempfile
from contextlib import nullcontext
from verl_kernel import env
from verl_kernel.cli import app

make, pools, answers = env.LocalPool, {}, []


def once(*key):  # commands with the same options share a pool: starting one takes seconds
    if key not in pools:
        pools[key] = make(*key)
    return nullcontext(pools[key])


env.LocalPool = once
for arguments in json.loads(sys.argv[1]):
    kept, files = [os.dup(1), os.dup(2)], [tempfile.TemporaryFile("w+") for _ in "oe"]
    for fd, file in zip((1, 2), files):
        os.dup2(file.fileno(), fd)
    sys.argv, code = ["verl-kernel", "eval", *arguments], 0
    try:
        app()
    except SystemExit as exc:
        code = exc.code
    sys.stdout.flush()
    sys.stderr.flush()
    for fd, old in zip((1, 2), kept):
        os.dup2(old, fd)
    answers.append([code, *[file.seek(0) or file.read() for file in files]])
print(json.dumps(answers), flush=True)
os._exit(0)
"""
NAMES = ["good.py", "wrong.py", "unlike_shapes.py", "torch_only.py", "forbidden.py", "empty.py"]
ODD = ["latin.py", "good.py", "binary.py", "zeros.py"]
MIXED = ["good.py", "latin.py", "torch_only.py", "forbidden.py"]
SEEDED = "--device cpu --seed 3"
RUNS = {
    "judged": f"reference.py {' '.join(NAMES)} --json {SEEDED}",
    "table": f"reference.py good.py wrong.py {SEEDED} --fail-on wrong",
    "global": f"reference.py global.py --json {SEEDED}",
    "odd": f"reference.py {' '.join(ODD)} --json {SEEDED}",
    "not compiled": "reference.py good.py --json --device cpu --compile-for off",
    "AMD": "reference.py good.py --device cpu --compile-for sm_90,gfx942 --gpu-profile mi300x",
    "options": f"reference.py {' '.join(MIXED)} --json {SEEDED} --static-check off --tolerance parity --trials 2"
    " --gpu-profile a100 --num-judges 2 --float32 tf32",
    "cuda": "reference.py good.py --device cuda --json",
}
UNFIT = {
    "broken_reference.py": "rellu",
    "needs_gpu.py": "it needs a GPU: judge it on a machine that has one",
    "slow.py": "it takes longer than --timeout = 2 s",
}
LINES = RUNS | {name: f"{name} good.py --json {SEEDED}" for name in UNFIT}
LINES["slow.py"] += " --timeout 2"
SHOWN = LINES.keys() - {"not compiled", "AMD", "options", "slow.py"}
"""What `make test` runs, with the options of one pool."""


@pytest.fixture(scope="module")
def ended(files):
    """Exit code, standard output and standard error of a run; those of a tier run one after another in one process."""

    @functools.cache
    def together(is_shown):
        lines = {name: line.split() for name, line in LINES.items() if (name in SHOWN) == is_shown}
        command = [sys.executable, "-c", IN_ONE_PROCESS, json.dumps([*lines.values()])]
        done = subprocess.run(command, cwd=files, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        return dict(zip(lines, json.loads(done.stdout), strict=True))

    return lambda name: together(name in SHOWN)[name]


@pytest.fixture
def results(ended):
    def read(run):
        code, out, error = ended(run)
        assert code == 0, error
        return [EvalResult.model_validate_json(line) for line in out.splitlines()]

    return read


def test_json_lines_in_order(ended, results):
    good, *bad = results("judged")
    assert [result.kernel for result in (good, *bad)] == NAMES
    assert [result.status for result in bad[:2]] == [EvalStatus.INCORRECT, EvalStatus.COMPILE_ERROR]
    assert good.status is EvalStatus.OK
    assert good.rewarded
    assert not any(result.rewarded for result in bad)
    assert [json.loads(line)["rewarded"] for line in ended("judged")[1].splitlines()] == [True] + 5 * [False]
    assert good.timing_source == "simulated"
    assert good.time_coverage == good.number_coverage == 1.0
    assert 2.5 < good.speedup < 3.5
    assert "Cannot make_shape_compatible" in bad[1].error.message
    assert {result.status for result in bad[3:]} == {EvalStatus.REJECTED_STATIC}


def test_launches_are_compiled(results):
    good = results("judged")[0]
    assert good.compiled_for == "sm_90"
    assert all(kernel.registers for kernel in good.compiled_kernels)


@pytest.mark.exhaustive
def test_compiling_can_be_switched_off(results):
    assert results("not compiled")[0].compiled_for is None


@pytest.mark.exhaustive
def test_kernels_for_amd_are_told_with_what_they_use(ended):
    code, out, error = ended("AMD")
    assert code == 0, error
    nvidia, amd = (line for line in out.splitlines() if ", compiled for " in line)
    assert nvidia.startswith("good.py: fused, compiled for sm_90: ")
    assert amd.startswith("good.py: fused, compiled for gfx942: ")
    amds = " registers, 0 of them AGPRs, ", " SGPRs, 0 bytes spilled, ", " blocks a compute unit, no matrix instr"
    for words in amds:
        assert words in amd
        assert words not in nvidia
    assert "times: simulated_unvalidated" in out


def test_what_the_compiler_refuses_is_refused_by_its_line(results):
    (refused,) = results("global")
    assert refused.status is EvalStatus.COMPILE_ERROR
    assert "global variable FACTOR" in refused.error.message


@pytest.mark.exhaustive
def test_a_seed_repeats_the_verdict_in_another_process(files, ended):
    again = in_a_process("eval", "reference.py", "wrong.py", "--json", *SEEDED.split(), cwd=files)
    first, second = json.loads(ended("judged")[1].splitlines()[1]), json.loads(again.stdout)
    for clock in ("stage_seconds", "queue_seconds"):
        del first[clock], second[clock]
    assert first == second


def test_a_kernel_that_is_no_text_does_not_stop_the_others(results):
    latin, good, *binary = results("odd")
    assert [result.kernel for result in (latin, good, *binary)] == ODD
    assert good.status is EvalStatus.OK
    assert {result.status for result in (latin, *binary)} == {EvalStatus.LOAD_ERROR}
    assert len({result.task_hash for result in (latin, good, *binary)}) == 1
    assert good.task_hash
    assert "not UTF-8 text (byte 0)" in latin.error.message
    assert all("is a binary file" in result.error.message for result in binary)


def test_table(ended):
    code, out, error = ended("table")
    assert code == 1, error  # by --fail-on
    for text in ("good.py", "ok", "100%", "wrong.py", "incorrect", "simulated"):
        assert text in out
    assert "talks" not in out


@pytest.mark.parametrize(("verdict", "fails"), [
    (timed(1.5), []), (timed(1.5, speedup_low=0.9), ["slow"]), (OK, ["slow"]),
    (timed(1.5, speedup_low=1.5, speedup_interval=(0.9, 2.4)), ["slow"]),
    (timed(2.0, decoy_kernel=True), ["wrong", "slow"]), (WRONG, ["wrong", "slow"]),
])  # fmt: skip
def test_what_an_exit_status_is_asked_for(verdict, fails):
    result = EvalResult(task_id="t", **verdict)
    assert [name for name, is_meant in FAIL_ON.items() if is_meant(result)] == fails


@pytest.mark.exhaustive
def test_options_reach_the_gym(results):
    good, latin, torch_only, imported = results("options")
    assert [result.kernel for result in (good, latin, torch_only, imported)] == MIXED
    assert (good.trials.total, good.kernel_ms.n) == (2, 1)  # that of the other mode is not timed
    assert good.env["gpu_profile"] == "a100"
    assert good.env["float32"] == "tf32"
    assert latin.status is EvalStatus.LOAD_ERROR
    assert torch_only.status is EvalStatus.DECOY
    assert imported.status is EvalStatus.COMPILE_ERROR


def assert_usage_error(answer, sentence):
    returned, stdout, stderr = answer
    assert returned == 2, answer
    assert stdout == "", answer
    assert_one_sentence(stderr, sentence)


@pytest.mark.parametrize(
    "reference", [name if name in SHOWN else pytest.param(name, marks=pytest.mark.exhaustive) for name in UNFIT]
)
def test_a_reference_that_cannot_serve_takes_one_sentence(ended, reference):
    assert_usage_error(ended(reference), UNFIT[reference])


def test_cuda_without_a_gpu_is_a_usage_error(ended):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    assert_usage_error(ended("cuda"), "device cuda")


def test_a_file_that_may_not_be_read(files):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (files / "secret.py").write_text("")
    (files / "secret.py").chmod(0)
    done = in_a_process("eval", "reference.py", "secret.py", cwd=files)
    assert_usage_error((done.returncode, done.stdout, done.stderr), "secret.py cannot be read (Permission denied)")


def test_an_interrupted_run_prints_what_was_judged(files):
    words = ["eval", "reference.py", "good.py", "hanging.py", "--device", "cpu", "--timeout", "600", "--json"]
    command = [sys.executable, "-m", "verl_kernel", *words]
    with subprocess.Popen(
        command, cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts
    ) as process:
        assert json.loads(process.stdout.readline())["status"] == "ok"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    assert process.returncode == 130
    assert error == "Interrupted: 1 of 2 kernels judged.\n"


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


@pytest.mark.parametrize(("facts", "shown"), [
    ({"timing_source": "simulated", "speedup_interval": (2.17, 3.71)}, "2.84x, 2.2 to 3.7"),
    ({"timing_source": "simulated"}, "2.84x "),
    ({"timing_source": "cuda_event", "speedup_low": 2.5}, "2.84x (>= 2.50x)"),
])  # fmt: skip
def test_a_speedup_is_shown_with_how_sure_it_is(facts, shown):
    result = EvalResult(task_id="t", kernel="k.py", status=EvalStatus.OK, correctness=True, speedup=2.84, **facts)
    console = Console(width=80, record=True, file=io.StringIO())
    print_verdicts("reference.py", [result], console)
    assert shown in console.export_text()


def test_each_size_of_a_task_has_a_row():
    ok = EvalResult(task_id="t", kernel="k.py", status=EvalStatus.OK, correctness=True, speedup=2.0)
    wrong = EvalResult(task_id="t", kernel="k.py", status=EvalStatus.INCORRECT, correctness=False)
    console = Console(width=80, record=True, file=io.StringIO())
    print_verdicts("reference.py", [joined(task("[256, 257]"), [ok, wrong])], console)
    assert [line.split() for line in console.export_text().splitlines() if line.startswith("   25")] == [
        ["256", "ok", "2.00x"], ["257", "incorrect"],
    ]  # fmt: skip


def test_a_narrow_terminal_cuts_no_help():
    message = "line 9, in kernel fused: a load lies outside the tensors of the launch, at element 786240 of x: mask it"
    error = EvalError(stage="trials", type="OutOfBounds", message=message)
    result = EvalResult(task_id="t", kernel="a" * 60 + ".py", status=EvalStatus.UNSAFE, error=error)
    console = Console(width=60, record=True, file=io.StringIO(), force_terminal=True)
    print_verdicts("reference.py", [result], console)
    text = console.export_text(clear=False)
    assert max(map(len, text.splitlines())) <= 60
    assert message in " ".join(text.split())
    assert "\x1b[31munsafe" in console.export_text(styles=True)


@pytest.mark.parametrize("columns", [40, 60, 79])
def test_a_narrow_terminal_keeps_names_and_speedups(columns):
    facts = {"task_id": "t", "status": EvalStatus.OK, "correctness": True}
    kernels, times = ["matmul_gelu_0.py", "matmul_gelu_1.py"], {"speedup": 2.84, "speedup_interval": (2.2, 3.7)}
    console = Console(width=columns, record=True, file=io.StringIO(), force_terminal=True)
    print_verdicts("reference.py", [EvalResult(kernel=name, **facts, **times) for name in kernels], console)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= columns
    folded = "".join(line[:17].strip() for line in lines)
    assert [name for name in kernels if name not in folded] == []
    assert sum("ok" in line and "2.84x" in line for line in lines) == 2
