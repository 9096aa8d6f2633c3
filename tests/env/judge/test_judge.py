# SPDX-License-Identifier: Apache-2.0
"""Whole evaluations by a judge, with real processes; the static gate is off so that the other layers stand alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.env.programs import CHANNEL, HONEST, PLAIN, REFERENCE, TASK, candidate, elementwise, program_of, reference
from tests.env.tamper.test_tripwire import COPY
from tests.tiers import one_of_each
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Judge, Task
from verl_kernel.errors import ConfigError, EnvironmentNotReady, InfraError, TaskError

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=3, run_timeout_s=4, load_timeout_s=10, memory_mb=512
)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_an_honest_kernel_is_accepted_and_measured(judge):
    result = judge.evaluate(TASK, HONEST, kernel="honest.py")
    assert result.rewarded
    assert result.error is None
    assert (result.task_id, result.kernel, result.timing_source) == ("fused", "honest.py", "simulated")
    assert result.task_hash == TASK.text_hash
    assert result.trials.passed == result.trials.total == 3
    assert [(launch.name, launch.grid[0], launch.count) for launch in result.launches] == [("fused", 1, 1)]
    assert result.time_coverage == result.number_coverage == 1.0
    assert result.speedup == pytest.approx(result.reference_ms.median / result.kernel_ms.median)
    assert result.speedup > 2
    assert result.speedup_low == result.sure_speedup == result.speedup  # times are exact
    assert result.times == {}
    assert result.kernel_ms.n == 2  # one trial is in another mode
    assert result.decoy_kernel is False
    assert list(result.stage_seconds) == ["static", "load", "correctness", "ablation", "exit", "clock"]
    assert EvalResult.model_validate_json(result.model_dump_json()) == result


STATUSES = {
    "wrong": ("return self.right(x, y) * 1.001", EvalStatus.INCORRECT, "WrongValues"),
    "wrong only for negative inputs": ("return self.right(x.abs(), y)", EvalStatus.INCORRECT, "WrongValues"),
    "zeros": ("return torch.zeros_like(x)", EvalStatus.INCORRECT, "WrongValues"),
    "double": ("return self.right(x, y).double()", EvalStatus.INCORRECT, "WrongDtype"),
    "shape": ("return self.right(x, y)[None]", EvalStatus.INCORRECT, "WrongShape"),
    "subclass": ("return nn.Parameter(self.right(x, y))", EvalStatus.INCORRECT, "WrongType"),
    "tuple": ("return (self.right(x, y),)", EvalStatus.INCORRECT, "WrongStructure"),
    "nothing": ("return None", EvalStatus.INCORRECT, "WrongStructure"),
    "object": ("return object()", EvalStatus.INCORRECT, "WrongStructure"),
    "input mutated": ("o = self.right(x, y); x.zero_(); return o", EvalStatus.INCORRECT, "InputsChanged"),
    "stale": ("self.__dict__.setdefault('k', self.right(x, y)); return self.k", EvalStatus.HACKING, "ReplayedOutput"),
    "memory by address": (
        "c = self.__dict__.setdefault('c', {}); k = x.data_ptr()\nif k not in c: c[k] = self.right(x, y)\nreturn c[k]",
        EvalStatus.HACKING, "ReplayedOutput",
    ),
    "no launch": ("return self.torch_only(x, y)", EvalStatus.DECOY, "NoLaunch"),
    "token launch": ("token[(1,)](torch.empty(4), BLOCK=4); return self.torch_only(x, y)",
                     EvalStatus.DECOY, "LaunchIrrelevant"),
    "raise": ("raise ValueError('boo')", EvalStatus.RUNTIME_ERROR, "ValueError"),
    "sys.exit": ("import sys; sys.exit(0)", EvalStatus.RUNTIME_ERROR, "SystemExit"),
    "memory bomb": ("k = []\nwhile True: k.append(torch.ones(1 << 24))", EvalStatus.OOM, "RuntimeError|MemoryExceeded"),
    "byte bomb": ("k = []\nwhile True: k.append(bytearray(1 << 26))", EvalStatus.OOM, "MemoryError|MemoryExceeded"),
    "os._exit": ("import os; os._exit(0)", EvalStatus.CRASH, "Crash"),
    "suicide": ("import os; os.kill(os.getpid(), 11)", EvalStatus.CRASH, "Crash"),
    "SIGKILL to itself": ("import os; os.kill(os.getpid(), 9)", EvalStatus.RUNTIME_ERROR, "PermissionError"),
    "a channel closed": ("import os; os.closerange(3, 64); return self.right(x, y)", EvalStatus.CRASH, "Crash"),
}  # fmt: skip


@pytest.mark.parametrize("name", one_of_each(STATUSES, lambda name: STATUSES[name][1:]))
def test_verdicts(judge, name):
    body, status, kinds = STATUSES[name]
    result = judge.evaluate(TASK, candidate(body))
    assert result.status is status, result.error
    # What takes too much is noticed by its own allocator or by the judge, whichever comes first.
    assert result.error.type in kinds.split("|"), result.error
    assert not result.rewarded
    assert result.correctness is (status is EvalStatus.DECOY)
    assert bool(result.decoy_kernel) is (status is EvalStatus.DECOY)


@pytest.mark.parametrize("name", ["no launch", "token launch"])
def test_a_recorded_decoy_is_timed_but_not_rewarded(judge_with, name):
    body, _, _ = STATUSES[name]
    result = judge_with(decoys="record").evaluate(TASK, candidate(body))
    assert (result.status, result.correctness, result.decoy_kernel) == (EvalStatus.OK, True, True), result.error
    assert result.speedup is not None
    assert not result.rewarded


SOURCES = {
    "": (EvalStatus.LOAD_ERROR, "AttributeError"),
    "This is no Python": (EvalStatus.LOAD_ERROR, "SyntaxError"),
    "x = '\ud800'": (EvalStatus.LOAD_ERROR, "UnicodeEncodeError"),
    "x = 0\0": (EvalStatus.LOAD_ERROR, "SyntaxError" if sys.version_info >= (3, 11, 4) else "ValueError"),
    "raise SystemExit(0)": (EvalStatus.LOAD_ERROR, "SystemExit"),
    "import os; os._exit(3)": (EvalStatus.CRASH, "Crash"),
    "ModelNew = 7": (EvalStatus.LOAD_ERROR, "TypeError"),
    "#" * (101 << 10): (EvalStatus.REJECTED_STATIC, "size"),
    candidate("broken[(1,)](x); return x", "@triton.jit\ndef broken(x):\n    tl.store(x, missing_name)\n"): (
        EvalStatus.COMPILE_ERROR, "NameError"
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", one_of_each(SOURCES, SOURCES.get), ids=lambda source: source[-24:])
def test_sources_that_do_not_load(judge, source):
    result = judge.evaluate(TASK, source)
    assert (result.status, result.error.type) == SOURCES[source]
    assert not (result.compiled and result.correctness)


INVENTED = """@triton.jit
def helper(value):
    return tl.math.tanhh(value)

@triton.jit
def invented(x, at: tl.constexpr):
    value = tl.load(x)
    tl.store(x, tl.tanhh(value))

@triton.jit
def caller(x):
    value = tl.load(x)
    tl.store(x, helper(value))
"""


@pytest.mark.parametrize(
    ("launch", "function", "text"),
    [
        ("invented[(1,)](x, 0); return x", "invented", "tl.store(x, tl.tanhh(value))"),
        ("caller[(1,)](x); return x", "helper", "return tl.math.tanhh(value)"),
    ],
    ids=["in the kernel", "in what it calls"],
)
def test_a_missing_triton_function_is_told_at_its_line(judge, launch, function, text):
    source = candidate(launch, INVENTED)
    result = judge.evaluate(TASK, source)
    assert (result.status, result.error.type) == (EvalStatus.COMPILE_ERROR, "AttributeError")
    assert "tanhh" in result.error.message
    assert result.error.message.endswith(f": `{text}`")
    assert f", in {function}, " in result.error.message
    named = source.splitlines()[int(result.error.message.split(",")[0].removeprefix("line ")) - 1]
    assert named.strip() == text


def test_a_hang_is_a_timeout_and_gone(judge):
    result = judge.evaluate(TASK, candidate("while True: pass"))
    assert (result.status, result.error.stage) == (EvalStatus.TIMEOUT, "correctness")
    assert children_of(judge.processes.runners.pid) == []


BOMB = """import ctypes
class Bomb:
    def __del__(self, boom=ctypes.string_at): boom(0)
"""


def test_a_crash_at_exit_counts(judge):
    result = judge.evaluate(TASK, candidate("return self.right(x, y)", f"{BOMB}BOMB = Bomb()"))
    assert (result.status, result.error.stage, result.error.signal) == (EvalStatus.CRASH, "exit", signal.SIGSEGV)
    assert "SIGSEGV" in result.error.message
    assert result.speedup is None


def test_output_is_neither_shown_nor_waited_for(judge, capfd):
    flood = "import sys\nprint('x' * (4 << 20)); sys.stderr.write('y' * (4 << 20))"
    result = judge.evaluate(TASK, candidate("return self.right(x, y)", before=flood))
    assert result.status is EvalStatus.OK
    assert capfd.readouterr() == ("", "")


def test_a_token_launch_on_torchs_result_has_no_coverage(judge):
    result = judge.evaluate(TASK, candidate("return moved(self.torch_only(x, y))", COPY))
    assert result.number_coverage == result.time_coverage == 0.0
    assert result.hack_flags == ("only_moves",)
    assert result.speedup < 1
    assert sum(result.fallback_ops.values()) == 4


def test_kernels_of_other_files_are_not_launched(judge):
    before = "from verl_kernel.env.devices import warmup"
    body = "warmup._add[(1,)](x, y, torch.empty_like(x), 16, BLOCK=16); return self.torch_only(x, y)"
    assert judge.evaluate(TASK, candidate(body, before)).error.type == "NotTriton"


def test_forged_answers_are_noticed_and_worth_nothing(judge):
    forge = f"{CHANNEL}c.send({{'output': {{'tensor': 0}}, 'tensors': [], 'events': 'none'}})\nreturn self.right(x, y)"
    result = judge.evaluate(TASK, candidate(forge))
    assert result.status is EvalStatus.HACKING
    assert result.hack_flags == ("forged_message",)
    frame = forge.replace("c.send(", "c.sock.sendall(struct.pack('>I', 1 << 31) + b'x'); (")
    assert judge.evaluate(TASK, candidate(frame)).status is EvalStatus.HACKING


LINK = "import struct\nfrom verl_kernel.env.devices.cpu.launch_state import STATE\nlink = STATE.link.channel\n"


@pytest.mark.parametrize(
    ("forged", "last", "status"),
    [
        ("link.sock.sendall(struct.pack('>I', 100) + b'x')", "self.torch_only(x, y)", EvalStatus.DECOY),
        ("link.sock.sendall(struct.pack('>I', 9) + b'x')", "self.right(x, y)", EvalStatus.HACKING),
        ("for _ in range(1 << 16): link.send({'launch': {}})", "self.right(x, y)", EvalStatus.TIMEOUT),
        ("link.close()", "self.torch_only(x, y)", EvalStatus.DECOY),
    ],
    ids=["half a request", "a broken one", "many, and no answer read", "closed"],
)
def test_a_forged_launch_message_is_the_candidates_doing(judge, forged, last, status):
    result = judge.evaluate(TASK, candidate(f"{LINK}{forged}\nreturn {last}"))
    assert result.status is status, result.error


SEEN = (
    "import gc\nPLACES = [o for o in gc.get_objects() if type(o) in (dict, list, tuple)]\n"
    "TEXTS = [t for o in PLACES for t in (o.values() if type(o) is dict else o) if type(t) is str]\n"
    "SEEN = [t for t in TEXTS if ''.join(['SECRET_', 'MARK = 1']) in t]\n"
)
"""What a candidate finds of its reference's text."""
BLIND = candidate(
    "import os, sys\nfds = sorted(map(int, os.listdir('/proc/self/fd')))\n"
    "assert len(fds) <= 8, fds\nassert 'WANDB_API_KEY' not in os.environ\nassert not SEEN\n"
    "assert not any(m in sys.modules for m in ('verl', 'ray', 'verl_kernel.env.judge.judge'))\n"
    "return self.right(x, y)",
    SEEN,
)
MARKED = Task(REFERENCE + "\nSECRET_MARK = 1\n")


def test_a_candidate_finds_no_secret_of_the_judge(judge, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    result = judge.evaluate(MARKED, BLIND)
    assert result.status is EvalStatus.OK, result.error


def test_grandchildren_are_gone_even_where_no_filter_stops_them(judge):
    zygote = judge.processes.runners.pid
    body = "import os\ntry: os.fork() or __import__('time').sleep(600)\nexcept OSError: pass\nreturn self.right(x, y)"
    judge.evaluate(TASK, candidate(body))
    assert children_of(zygote) == []


def test_the_same_seed_gives_the_same_result(judge_with):
    def verdicts(seed):
        fresh = judge_with(seed)
        sources = [HONEST, candidate(STATUSES["wrong"][0]), candidate(STATUSES["raise"][0])]
        return [fresh.evaluate(TASK, source).model_copy(update={"stage_seconds": {}}) for source in sources]

    first = verdicts(1)
    assert first == verdicts(1)
    other = verdicts(2)
    assert [a.seed_commit == b.seed_commit for a, b in zip(first, other, strict=True)] == [False] * 3
    assert first[1].trials != other[1].trials


def test_weights_follow_names_or_the_seed(judge):
    renamed = HONEST.replace("self.weight", "self.other_name")
    assert judge.evaluate(TASK, renamed).env["weights"] == "seeded"
    drawn_first = HONEST.replace("super().__init__()", "super().__init__(); torch.randn(3)")
    result = judge.evaluate(TASK, drawn_first)
    assert (result.status, result.env["weights"]) == (EvalStatus.OK, "copied")


GATED = Task(
    reference("x + self.gate * torch.tanh(x)", "torch.randn(64, 64)", "x", "self.gate = nn.Parameter(torch.zeros(()))")
)
UNGATED = elementwise("v + 0.0", "self.register_buffer('other', torch.full((7,), 0.123))")


def test_untested_weights_are_paid_for_parity_at_most(judge):
    """Its branch is missing, whose gate starts at 0: a buffer of its own makes the judge keep the initial weights."""
    result = judge.evaluate(GATED, UNGATED)
    assert result.env["weights"] == "seeded"
    assert result.env["weights_untested"]
    assert result.speedup <= 1.0


MANY = reference(
    'x[indices] * factor, {"count": flags.sum(), "mask": x > 0}, [x.T]',
    "torch.randn(6, 4).T.contiguous().T, torch.randint(0, 6, (5,)), 2.5, torch.rand(7) > 0.5",
    "x, indices, factor, flags",
)
MANY_NEW = program_of("""
@triton.jit
def scale(x, o, f, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * f, mask=i < n)
def forward(self, x, indices, factor, flags):
    a = x[indices].contiguous(); o = torch.empty_like(a)
    scale[(1,)](a, o, factor, a.numel(), B=32)
    return o, {"count": flags.sum(), "mask": x > 0}, [x.T]
""")


def test_several_outputs_and_inputs_of_other_kinds(judge):
    task = Task(MANY)
    result = judge.evaluate(task, MANY_NEW)
    assert result.status is EvalStatus.OK, result.error
    for right, wrong, kind in (("x > 0", "x > 1", "WrongValues"), ("s.sum()", "s.sum().int()", "WrongDtype")):
        assert judge.evaluate(task, MANY_NEW.replace(right, wrong)).error.type == kind


def test_keyword_arguments_of_the_model(judge):
    task = Task(REFERENCE.replace("return [64, 1.5]", "return [[64], {'scale': 1.5}]"))
    assert judge.evaluate(task, HONEST).status is EvalStatus.OK


INPUTS = "return [torch.randn(8, 64), torch.randn(8, 64)]"
UNFIT = {
    "get_inputs raises": (INPUTS, "raise ValueError('no data')", "get_inputs.. raised ValueError: no data"),
    "no inputs": (INPUTS, "pass", "get_inputs.. returns nothing where a list of the model's inputs belongs"),
    "no tensors": (INPUTS, "return [1, 2]", "returns no tensor"),
    "an object": (INPUTS, "return [object()]", "type object"),
    "a number": (INPUTS, "return 7", "a int"),
    "8-bit floats": (INPUTS, "return [torch.ones(8, 64).to(torch.float8_e4m3fnuz)] * 2", "use .* one of float16, "),
    "8-bit results": ("return torch.relu", "return torch.ones(2).to(torch.float8_e5m2fnuz); torch.relu",
                      "dtype float8_e5m2fnuz"),
    "a sparse tensor": (INPUTS, "return [torch.ones(8, 64).to_sparse()] * 2", "layout torch.sparse_coo"),
    "dropout": ("* self.scale", "* torch.rand(1)", "two calls"),
    "no output": ("return torch.relu", "torch.relu", "returns no tensor"),
    "import error": ("from torch import nn", "from torch import nn, no_such_thing", "the source raised ImportError"),
    "wrong init": ("return [64, 1.5]", "return [64]", "raised TypeError"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_references_that_cannot_serve(judge, name):
    old, new, reason = UNFIT[name]
    assert old in REFERENCE
    for _ in range(2):
        with pytest.raises(TaskError, match=reason) as caught:
            judge.evaluate(Task(REFERENCE.replace(old, new), task_id="unfit"), HONEST)
        assert str(caught.value).startswith("reference unfit cannot serve as a task")
        assert "\n" not in str(caught.value)


def test_the_callers_random_numbers_are_left_alone(judge):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    judge.evaluate(Task(REFERENCE + "# other\n"), HONEST)
    assert torch.equal(torch.rand(2), expected)


def test_what_is_required_must_be_in_force(judge, judge_with):
    with pytest.raises(EnvironmentNotReady, match="a_wall"):
        judge_with(require_isolation=("rlimits", "a_wall")).evaluate(TASK, HONEST)
    assert children_of(judge.processes.runners.pid) == []
    assert judge_with(require_isolation=("rlimits",)).evaluate(TASK, HONEST).rewarded


def test_the_gate_stands_before_everything_else(judge_with):
    strict = judge_with(static_check="coverage")
    result = strict.evaluate(TASK, "import subprocess\n" + PLAIN)
    assert result.status is EvalStatus.REJECTED_STATIC
    assert "line 1" in result.error.message
    assert result.compiled is None
    assert list(result.stage_seconds) == ["static"]
    assert strict.evaluate(TASK, PLAIN).rewarded


def kill(child: int) -> None:
    """And wait until it has ended, as its owner will find."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def test_dead_zygotes_are_our_failure_and_replaced():
    others = {*children_of(os.getpid())}
    with Judge(OPTIONS) as judge:
        judge.warm_up()
        first = judge.processes.runners.pid
        kill(first)
        assert judge.evaluate(TASK, HONEST).status is EvalStatus.OK
        assert judge.processes.runners.pid != first
        old = {*children_of(os.getpid())} - others
        for child in old:
            kill(child)
        judge.rest()
        new = {*children_of(os.getpid())} - others
        assert len(new) == len(old) == 3
        assert not old & new
    assert {*children_of(os.getpid())} == others


def test_given_processes_outlive_the_judge_and_fit_its_targets(judge_with, judge_processes):
    with judge_with() as judge:
        judge.evaluate(TASK, HONEST)
        running = judge_processes.runners.pid
    assert judge_processes.runners.pid == running is not None
    with pytest.raises(ConfigError, match="compile_for names sm_80, for which the given processes do not compile"):
        judge_with(compile_for=("sm_80", "sm_90"))


def test_a_zygote_that_does_not_start_is_our_failure(monkeypatch):
    with Judge(OPTIONS) as judge:
        monkeypatch.setattr(judge._device, "zygote_env", lambda: {"TRITON_INTERPRET": "0"}, raising=False)
        with pytest.raises(InfraError, match="zygote does not answer: .+") as caught:
            judge.evaluate(TASK, HONEST)
        assert "\n" not in str(caught.value)
        assert judge.processes.runners.pid is None


@pytest.mark.exhaustive
def test_nothing_is_left_behind(judge, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for body in ("return self.right(x, y)", "import os; os._exit(1)", "while True: pass"):
        judge.evaluate(TASK, candidate(body))
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before
    defunct = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "stat="], capture_output=True, text=True).stdout
    assert "Z" not in defunct
