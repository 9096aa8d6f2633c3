# SPDX-License-Identifier: Apache-2.0
"""Budgets of a candidate's own time: what it does and what it sleeps counts, what the machine does to it does not."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from tests.env.programs import CHANNEL, HONEST, REFERENCE, TASK, candidate
from tests.env.waiting import until
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, JudgeProcess, Task
from verl_kernel.env.compilation.targets import CODE_S
from verl_kernel.env.judge.processes import own_time
from verl_kernel.env.judge.processes.own_time import OwnTime, backstop_s
from verl_kernel.env.pool.limits import evaluation_limit_s
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import TaskError

BUDGET_S = 1.5
OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=2, run_timeout_s=BUDGET_S, load_timeout_s=BUDGET_S,
    reference_timeout_s=BUDGET_S, memory_mb=512,
)  # fmt: skip
SPIN = "import time\nbegun = time.process_time()\nwhile time.process_time() - begun < {seconds}: pass\n"
RIVALS, BUSY = 5, "print(flush=True)\nwhile True: pass"
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel counts no waits"),
]


@contextmanager
def process(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a program, from its first line of output on."""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@contextmanager
def rivals(pid: int) -> Iterator[None]:
    """Others that keep the only processor busy that the process and its children may use."""
    mine = os.sched_getaffinity(pid)
    with ExitStack() as started:
        for _ in range(RIVALS):
            started.enter_context(process(f"import os\nos.sched_setaffinity(0, [{min(mine)}])\n{BUSY}"))
        try:
            os.sched_setaffinity(pid, [min(mine)])
            yield
        finally:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, mine)


@pytest.fixture
def zygote(judge) -> int:
    judge.warm_up()
    return judge.processes.runners.pid


@pytest.mark.exhaustive
def test_a_busy_machine_changes_no_verdict(judge, zygote):
    """A candidate that needs 60 % of its budget, on a processor that it shares with five others."""
    slow = f"{SPIN.format(seconds=0.6 * BUDGET_S)}\n{HONEST}"
    with rivals(zygote):
        result = judge.evaluate(TASK, slow)
    assert result.stage_seconds["load"] > BUDGET_S, "the processor was not busy: this proves nothing"
    assert result.status is EvalStatus.OK, result.error


@pytest.mark.exhaustive
def test_what_serves_a_process_may_wait_for_a_processor():
    with process("import time; print(flush=True); time.sleep(60)") as asleep, process(BUSY) as busy:
        alone, served = OwnTime(asleep.pid), OwnTime(asleep.pid)
        served.serve(own_time.RunQueue(str(busy.pid)))
        with closing(alone), closing(served), rivals(busy.pid):
            alone.start()
            served.start()
            time.sleep(2.0)
            assert served.used_s() < 0.6 * alone.used_s()


@pytest.mark.exhaustive
def test_a_spinner_is_over_its_budget_on_a_busy_machine_too(judge, zygote):
    with rivals(zygote):
        result = judge.evaluate(TASK, f"{SPIN.format(seconds=600)}\n{HONEST}")
    assert result.status is EvalStatus.TIMEOUT
    assert result.error.message.startswith(f"load used up kernelgym.load_timeout_s = {BUDGET_S:g} s of processor time")


STILL = {
    "asleep": "import time\ntime.sleep(600)",
    "waiting for a pipe": "import os\nos.read(os.pipe()[0], 1)",
    "half asleep": "import time\nwhile True:\n    time.sleep(0.02)\n    sum(range(100000))",
}


@pytest.mark.parametrize("name", thinned(STILL, 5))
def test_a_process_that_does_nothing_uses_its_budget_too(judge, name):
    result = judge.evaluate(TASK, candidate(f"{STILL[name]}\nreturn self.right(x, y)"))
    assert result.status is EvalStatus.TIMEOUT, (result.status, result.error)
    assert "correctness used up kernelgym.run_timeout_s" in result.error.message


def test_forwards_share_one_budget(judge):
    body = f"import time; time.sleep({0.7 * BUDGET_S}); return self.right(x, y)"
    assert judge.evaluate(TASK, candidate(body)).status is EvalStatus.TIMEOUT


@pytest.mark.exhaustive
def test_an_answer_in_drops_is_none(judge):
    """Bytes that never become a message keep the channel busy, not the deadline away."""
    drip = f"{CHANNEL}c.sock.sendall(struct.pack('>I', 4 << 20))\nwhile True: c.sock.sendall(b' ')"
    assert judge.evaluate(TASK, candidate(drip)).status is EvalStatus.TIMEOUT


@pytest.mark.exhaustive
def test_budgets_are_wall_clock_without_a_wait_counter(judge, zygote, monkeypatch):
    monkeypatch.setattr(own_time.RunQueue, "waited_ns", lambda self: 0)
    slow = f"{SPIN.format(seconds=0.9 * BUDGET_S)}\n{HONEST}"
    with rivals(zygote):
        assert judge.evaluate(TASK, slow).status is EvalStatus.TIMEOUT


def test_the_wall_clock_ends_what_never_gets_a_processor(judge, monkeypatch):
    """Where the queue explains everything, ten times the budget and half a minute are the end."""
    monkeypatch.setattr(OwnTime, "is_over", lambda self, budget_s: False)
    monkeypatch.setattr("verl_kernel.env.judge.processes.runner.backstop_s", lambda budget_s: 2 * budget_s)
    result = judge.evaluate(TASK, candidate("while True: pass"))
    assert result.status is EvalStatus.TIMEOUT
    assert "wall clock" in result.error.message


@pytest.mark.exhaustive
def test_a_reference_is_not_slow_because_the_machine_is():
    """The judge of another process, which ends itself where its reference hangs."""

    def task(share: float) -> Task:
        return Task(f"{SPIN.format(seconds=share * BUDGET_S)}\n{REFERENCE}# {share}\n", task_id="slow")

    with closing(JudgeProcess(OPTIONS)) as process:
        process.start()
        with rivals(process.pid):
            begun = time.monotonic()
            assert process.judge(EvalRequest(task(0.6), HONEST)).status is EvalStatus.OK
            assert time.monotonic() - begun > BUDGET_S, "the processor was not busy: this proves nothing"
            with pytest.raises(Exception, match="kernelgym.reference_timeout_s = 1.5 s"):
                process.judge(EvalRequest(task(400), HONEST))


def test_a_reference_that_sleeps_is_late_at_its_limit():
    with closing(JudgeProcess(OPTIONS)) as process:
        process.start()
        begun = time.monotonic()
        with pytest.raises(TaskError, match="kernelgym.reference_timeout_s = 1.5 s"):
            process.judge(EvalRequest(Task(f"import time\ntime.sleep(1000)\n{REFERENCE}", task_id="slow"), HONEST))
        assert time.monotonic() - begun < backstop_s(BUDGET_S)


@pytest.mark.exhaustive
def test_a_thread_in_the_queue_is_not_over_before_its_turn():
    """The kernel counts a wait when it ends: until then the clock on the wall proves nothing."""
    with process(BUSY) as child, rivals(child.pid), closing(OwnTime(child.pid)) as own:
        assert not own.is_over(1e9)
        assert until(lambda: own.is_over(0.05))
        assert own.used_s() >= 0.05


def test_a_machine_that_stands_still_takes_nobodys_time(monkeypatch):
    monkeypatch.setattr(own_time, "_PAUSE_S", 0.5)
    with process("import time; print(flush=True); time.sleep(60)") as child, closing(OwnTime(child.pid)) as own:
        time.sleep(1.5)  # nobody looks
        assert not own.is_over(1.0)
        assert until(lambda: own.is_over(1.0))


def test_a_process_that_has_ended_is_no_error():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    own = OwnTime(child.pid)
    child.wait()
    assert own.used_s() >= 0
    assert own.is_over(0)
    own.close()
    own.close()


def test_limits_of_the_owners_come_after_every_limit_within():
    for options in (OPTIONS, GymOptions(device="cpu")):
        within = 2 * options.reference_timeout_s + 4 * options.load_timeout_s + options.run_timeout_s + CODE_S
        assert evaluation_limit_s(options) > 10 * within
    assert backstop_s(20) == 230
