# SPDX-License-Identifier: Apache-2.0
"""Ends that a candidate arranges for itself are verdicts; only evidence that is not its own makes one ours."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import pytest

from tests.env.programs import CHANNEL, HONEST, TASK, candidate
from tests.tiers import thinned
from verl_kernel.env import EvalResult, EvalStatus, GymOptions
from verl_kernel.env.judge import runner_client
from verl_kernel.env.judge.processes import runner
from verl_kernel.env.trace import TraceEvent, load_events
from verl_kernel.errors import InfraError

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=3, run_timeout_s=6, load_timeout_s=10, memory_mb=512,
    disk_mb=16,
)  # fmt: skip
CTYPES = "import ctypes, os, signal\nlibc = ctypes.CDLL(None)\n"
ALARM = (  # timer_create with SIGKILL as its signal
    CTYPES + "event = (ctypes.c_int * 16)(0, 0, 9, 0)\ntimer = ctypes.c_void_p()\n"
    "assert libc.timer_create(1, event, ctypes.byref(timer)) == 0\n"
    "soon = (ctypes.c_long * 4)(0, 0, 0, 1000000)\nlibc.timer_settime(timer, 0, soon, None)\nwhile True: pass"
)


def test_a_sigkill_that_a_candidate_arranges_is_a_crash(judge):
    """Other ways to one are in tests/exploits/attacks/processes.py."""
    result = judge.evaluate(TASK, candidate(ALARM))
    assert (result.status, result.error.signal) == (EvalStatus.CRASH, signal.SIGKILL), result.error


@pytest.mark.parametrize("number", thinned([int(signal.SIGRTMIN), int(signal.SIGRTMIN) + 6, int(signal.SIGRTMAX)], 3))
def test_every_signal_can_be_reported(judge, number):
    result = judge.evaluate(TASK, candidate(f"import os; os.kill(os.getpid(), {number})"))
    assert (result.status, result.error.signal) == (EvalStatus.CRASH, number)


@pytest.fixture
def killed(judge_with, monkeypatch) -> Callable[..., EvalResult]:
    """Makes an evaluation that ends by SIGKILL while the kernel's counter reads `counts`, one after another."""

    def run(body: str, counts: list[int], **options: int) -> EvalResult:
        readings = iter([*counts, *counts[-1:] * 9])
        monkeypatch.setattr(runner_client, "oom_kills", lambda: next(readings))
        return judge_with(**options).evaluate(TASK, candidate(body))

    return run


def test_a_kill_that_the_kernel_counted_is_ours(killed):
    with pytest.raises(InfraError, match="out of memory.*kernelgym.memory_mb = 512"):
        killed(ALARM, [3, 4])
    assert killed(ALARM, [4, 4]).status is EvalStatus.CRASH


def test_a_kill_for_memory_is_the_processs_own(killed):
    result = killed(f"kept = bytearray(300 << 20)\n{ALARM}", [3, 4])
    assert (result.status, result.error.type) == (EvalStatus.OOM, "MemoryExceeded")
    with pytest.raises(InfraError):
        killed(f"kept = bytearray(300 << 20)\n{ALARM}", [3, 4], memory_mb=4096)


def test_the_counter_is_the_control_groups_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_ROOT", tmp_path)
    runner._counter.cache_clear()
    assert runner.oom_kills() == int(dict(map(str.split, Path("/proc/vmstat").read_text().splitlines()))["oom_kill"])
    (tmp_path / "memory.events").write_text("low 0\noom 9\noom_kill 7\noom_group_kill 1\n")
    runner._counter.cache_clear()
    assert runner.oom_kills() == 7
    monkeypatch.undo()
    runner._counter.cache_clear()


def reply(events: str = "[]", spent: str = "{}", more: str = "") -> str:
    body = f"'output': {{'tensor': 0}}, 'tensors': [], 'events': {events}, 'spent': {spent}{more}"
    return f"{CHANNEL}c.send({{{body}}})\n"


EVENT = (
    "{'kind': 'op', 'name': NAME, 'grid': [], 'bytes': 1, 'flops': 0, 'half_flops': 0, 'source': '', 'failed': 1 < 0}"
)
HOSTILE = {
    "a time that no float holds": reply(spent="{'device': 10 ** 400}"),
    "nesting beyond the parser": CHANNEL
    + "body = b'[' * 500000 + b']' * 500000\nc.sock.sendall(struct.pack('>I', len(body)) + body)\n",
    "a long trace": reply(events=f"[{EVENT}] * 25000".replace("NAME", "'aten::add'"), spent="{'own': 0}"),
    "notes without end": reply(more=", 'notes': {str(n): n for n in range(200000)}"),
    "text without end": reply(
        more=", 'failure': {'status': 'crash', 'type': '0x' + 'a' * (1 << 20), 'message': 'y' * (1 << 21)}"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(HOSTILE, 2))
def test_the_judge_survives_whatever_it_is_told(judge, name):
    result = judge.evaluate(TASK, candidate(f"{HOSTILE[name]}return self.right(x, y)"))
    assert not result.rewarded
    assert result.status is not EvalStatus.INFRA_ERROR
    assert EvalResult.model_validate_json(result.model_dump_json()) == result
    assert len(result.model_dump_json()) < 20_000
    assert judge.evaluate(TASK, HONEST).rewarded


def test_a_trace_of_names_that_are_no_text_is_refused():
    """Nothing could write them down afterwards."""
    event = TraceEvent("op", "aten::add").to_json()
    assert load_events([event])
    for field in ("name", "source"):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            load_events([{**event, field: "\ud800"}])


WRITES = {
    "many large files": "for n in range(10000): open(str(n), 'wb').write(bytes(1 << 19))",
    "many empty files": "n = 0\nwhile True: open(str(n), 'w').close(); n += 1",
    "directories in directories": "import os\nwhile True: os.mkdir('d'); os.chdir('d')",
    "links": "import os\nn = 0\nwhile True: os.symlink('x', str(n)); n += 1",
    "a log without end": "while True: print('x' * 4096)",
}


@pytest.mark.parametrize("name", thinned(WRITES, 4))
def test_disk_is_bounded_in_total(judge, name, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = judge.evaluate(TASK, candidate(f"{WRITES[name]}\nreturn self.right(x, y)"))
    assert (result.status, result.error.type) == (EvalStatus.OOM, "DiskExceeded"), result.error
    assert "kernelgym.disk_mb = 16" in result.error.message
    assert os.listdir(tmp_path) == []


def test_an_answer_that_is_there_at_once_counts(judge):
    burst = "for n in range(20): open(str(n), 'wb').write(bytes(1 << 20))\nreturn self.right(x, y)"
    assert judge.evaluate(TASK, candidate(burst)).error.type == "DiskExceeded"


HONEST_WRITES = {
    "a cache": "import os\nos.makedirs('cache/a', exist_ok=True)\nfor n in range(40):\n"
    "    open(f'cache/a/{n}', 'wb').write(bytes(20000))",
    "a file that is written again": "for n in range(60): open('kept', 'wb').write(bytes(1 << 20))",
    "a long log": "for n in range(2000): print('x' * 4096)",
    "memory that is given back": "for n in range(20): bytearray(200 << 20)",
}


@pytest.mark.parametrize("name", thinned(HONEST_WRITES, 4))
def test_what_stays_within_its_grants_is_let_be(judge, name):
    body = f"if not hasattr(self, 'begun'):\n    self.begun = True\n{indent(HONEST_WRITES[name], '    ')}\n"
    result = judge.evaluate(TASK, candidate(f"{body}return self.right(x, y)"))
    assert result.status is EvalStatus.OK, result.error


def test_a_tree_left_behind_at_the_exit_goes_too(judge, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = (
        "import atexit, os\nclass Digger:\n    def __del__(self, os=os):\n"
        "        for _ in range(2500): os.mkdir('d'); os.chdir('d')\nDIGGER = Digger()\n"
    )
    result = judge.evaluate(TASK, candidate("return self.right(x, y)", before))
    assert result.status is EvalStatus.OK
    assert os.listdir(tmp_path) == []


def test_shared_pages_are_memory(judge, monkeypatch):
    """The judge sees them where no limit of address space stands before them, as on a GPU."""
    fork = judge.processes.runners.fork

    def watched_closely(*arguments):
        runner = fork(*arguments)
        runner.options = replace(runner.options, memory_mb=64)
        return runner

    monkeypatch.setattr(judge.processes.runners, "fork", watched_closely)
    body = "import mmap\nkept = mmap.mmap(-1, 200 << 20)\nkept.write(bytes(200 << 20))\nwhile True: pass"
    result = judge.evaluate(TASK, candidate(body))
    assert (result.status, result.error.type) == (EvalStatus.OOM, "MemoryExceeded"), result.error


def test_nothing_of_a_first_runner_reaches_the_second(judge):
    """A forward that dies without its kernels is loaded again, from what the gate has read."""
    body = (
        "out = self.right(x, y)\nif out.isnan().any().item():\n"
        "    import os\n    open('kernel.py', 'w').write('raise SystemExit')\n    os.mkdir('left'); os.chmod('.', 0)\n"
        "    os._exit(3)\nreturn out"
    )
    assert judge.evaluate(TASK, candidate(body)).status is EvalStatus.OK


@pytest.mark.exhaustive
def test_a_runner_that_does_not_die_costs_no_verdict(judge, monkeypatch):
    """The zygote may wait long for a process that the kernel does not let go."""
    zygote = judge.processes.runners

    def stuck(pid):
        raise zygote._failed(TimeoutError("no message"))

    monkeypatch.setattr(zygote, "reap", stuck)
    assert judge.evaluate(TASK, candidate("while True: pass")).status is EvalStatus.TIMEOUT
    monkeypatch.undo()
    assert judge.evaluate(TASK, HONEST).rewarded
