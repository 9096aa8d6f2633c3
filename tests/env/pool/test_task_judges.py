# SPDX-License-Identifier: Apache-2.0
"""Judges of tasks whose references are not trusted: what they answer, and what their owner believes."""

import json
from contextlib import closing

import psutil
import pytest

from tests.env.waiting import until
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Judge, Task
from verl_kernel.env.conformance.programs import HONEST, RAISES, REFERENCE, WRONG
from verl_kernel.env.pool import task_judges
from verl_kernel.env.pool.scheduling.judges import TaskJudgeFailed, Tries
from verl_kernel.env.pool.task_judges import TaskJudges
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import ConfigError, EnvironmentNotReady, TaskError

pytestmark = [pytest.mark.processes, pytest.mark.slow]
OPTIONS = GymOptions(device="cpu", correctness_trials=1, static_check="off", references="jailed", reference_timeout_s=9)
_SENDS = """
import os, socket, stat, struct
def send(data):
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                socket.socket(fileno=fd).sendall(data)
        except OSError:
            pass
    os._exit(0)
"""


@pytest.fixture(scope="module")
def judges():
    with closing(TaskJudges(OPTIONS, seed=1)) as judges:
        yield judges


def task(code: str = "", namespace: str = "") -> Task:
    return Task(f"{code}\n{REFERENCE}", task_id="t", namespace=namespace)


def judged(judges, task, source=HONEST):
    return judges.judge(EvalRequest(task, source, "k.py"))


@pytest.mark.parametrize(("source", "status"), [
    (HONEST, EvalStatus.OK), (WRONG, EvalStatus.INCORRECT), (RAISES, EvalStatus.RUNTIME_ERROR),
])  # fmt: skip
def test_verdicts_are_those_of_a_judge(judges, source, status):
    result = judged(judges, task(), source)
    assert (result.status, result.task_id, result.kernel) == (status, "t", "k.py")
    assert {"landlock", "seccomp"} <= set(result.env["reference_isolation"].split())


def test_figures_are_those_of_a_judge(judges):
    with Judge(GymOptions(device="cpu", correctness_trials=1, static_check="off"), seed=1) as judge:
        there = judge.evaluate(task(), HONEST)
    here = judged(judges, task())
    assert (here.speedup, here.time_coverage, here.isolation) == (there.speedup, there.time_coverage, there.isolation)


def test_an_audit_is_that_of_a_judge(judges):
    with Judge(GymOptions(device="cpu"), seed=1) as judge:
        there = judge.audit(task())
    here = judges.audit(task())
    assert [each.defect for each in here.findings] == [each.defect for each in there.findings]
    assert here.task_hash == task().text_hash


@pytest.mark.exhaustive
def test_a_compiled_reference_is_counted_in_the_jail():
    with closing(TaskJudges(GymOptions(device="cpu", references="jailed", reference_mode="compile"))) as judges:
        result = judged(judges, task())
    assert (result.status, result.reference_mode) == (EvalStatus.OK, "compile"), result.error


def forged(body: bytes, length: int | None = None) -> str:
    """A reference that answers in place of its judge."""
    return f"{_SENDS}send(struct.pack('>I', {len(body) if length is None else length}) + {body!r})"


def verdict(**fields: object) -> str:
    return json.dumps({"task_id": "another", "status": "ok", "correctness": True, **fields})


def answering(text: str) -> bytes:
    return json.dumps({"answer": text}).encode()


@pytest.mark.parametrize("code", thinned([
    forged(answering(verdict(time_coverage=1e9))), forged(answering(verdict(number_coverage=-1))),
    forged(answering(verdict(task_flags=3))), forged(answering("[" * 5000)), forged(answering(verdict()[:-1])),
    forged(b"[1]"), forged(b'{"kind": "SystemExit", "message": "x"}'),
    forged(b'{"kind": ["TaskError"], "message": "x"}'), forged(b"x", length=1 << 31),
    "import os\nos.kill(os.getpid(), 9)", "import os\nos._exit(0)",
], every=4))  # fmt: skip
def test_what_no_judge_says_is_no_verdict(judges, code):
    with pytest.raises(TaskJudgeFailed, match="the judge of task t"):
        judged(judges, task(code))


def test_a_forged_verdict_is_about_its_own_task(judges):
    infinite = {"speedup": float("inf"), "time_coverage": float("nan")}
    code = forged(answering(verdict(**infinite, kernel="another", task_hash="another")))
    result = judged(judges, task(code))
    assert (result.task_id, result.kernel, result.task_hash) == ("t", "k.py", task(code).text_hash)
    assert result.speedup is result.time_coverage is None  # no reward is infinite


def test_an_error_is_cut(judges):
    with pytest.raises(TaskError) as raised:
        judged(judges, task(forged(json.dumps({"kind": "TaskError", "message": "x\ud800" * 100_000}).encode())))
    assert len(str(raised.value).encode()) <= 4000


@pytest.mark.exhaustive
def test_a_reference_that_takes_too_long_is_told_so(judges):
    with pytest.raises(TaskError, match="kernelgym.reference_timeout_s = 9 s"):
        judged(judges, task("import time\ntime.sleep(1000)"))


def test_no_judge_serves_two_tasks_or_namespaces(judges):
    def running(recursive: bool) -> int:
        return len(psutil.Process(judges.pid).children(recursive))

    keeps = "import os\nfor _ in range(50):\n    os.posix_spawn('/bin/sleep', ['sleep', '3600'], {}, setsid=True)"
    before = running(recursive=True)
    for namespace in ("one", "two", "one", "three", "four"):
        assert judged(judges, task(keeps, namespace)).status is EvalStatus.OK
    assert list(judges._judges) == [task(keeps, namespace).cache_key for namespace in ("three", "four")]
    until(lambda: running(recursive=False) == 3)  # with one that waits for a task
    assert running(recursive=True) < before + 130


def test_judges_go_on_after_the_death_of_what_forks_them(judges):
    judged(judges, task())
    forks = psutil.Process(judges.pid)
    forks.kill()
    until(lambda: forks.status() == psutil.STATUS_ZOMBIE)
    assert judged(judges, task()).status is EvalStatus.OK


def test_a_task_has_a_seed_of_its_own():
    seeds = [task_judges._seed(seed, each) for seed in (1, 2) for each in (task(), task("#"), task("", "one"))]
    assert len(set(seeds)) == 6
    assert task_judges._seed(None, task()) is None


@pytest.mark.parametrize("missing", thinned(["landlock", "seccomp", "no_capabilities"], every=3))
def test_a_weak_jail_is_refused(missing):
    in_force = {"process_namespace", *task_judges._NEEDED} - {missing}
    with pytest.raises(EnvironmentNotReady, match=f"this machine offers no {missing}"):
        task_judges._refuse_weak(sorted(in_force))


@pytest.mark.parametrize(("key", "value"), [("reference_cache", "/"), ("verdict_cache", "/"), ("device", "cuda")])
def test_untrusted_judges_share_nothing_and_get_no_gpu(key, value):
    with pytest.raises(ConfigError, match=f"kernelgym.{key} is '{value}'"):
        GymOptions(references="jailed", **{key: value})


def test_a_judge_of_this_process_cannot_jail():
    with pytest.raises(ConfigError, match="kernelgym.references is 'jailed'"):
        Judge(OPTIONS)


def test_a_reference_does_not_put_judges_out_of_rotation():
    tries = Tries()
    tries.begin()
    tries.failed(object(), TaskJudgeFailed("ended"))
    assert tries.suspect is None
    assert tries.may_repeat
