# SPDX-License-Identifier: Apache-2.0
"""Workers without a GPU in front of judges that only write down what reaches them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.env.gyms import pretend_cuda
from tests.env.pool.test_dispatcher import Actor, ask, settle
from tests.env.programs import HONEST, REFERENCE, candidate
from tests.figures.profiles import PROFILE
from verl_kernel.env import EvalError, EvalResult, EvalStatus, GymOptions, JudgeProcess, Task
from verl_kernel.env.pool.dispatcher import Dispatcher, Prefilter, is_final, prefilter_options
from verl_kernel.env.pool.local import LocalJudge, LocalPool
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import ConfigError, EnvironmentNotReady, InfraError, TaskError

OPTIONS = GymOptions(device="cuda", prefilter="cpu", prefilter_judges=1, run_timeout_s=4, reference_timeout_s=6)


def verdict(status: EvalStatus, stage: str = "correctness", **fields) -> EvalResult:
    error = None if status is EvalStatus.OK else EvalError(stage=stage, type="T", message="m")
    return EvalResult(task_id="fused", status=status, error=error, **fields)


class Worker(Actor):
    """Answers with the verdict that it was given for a source."""

    def __init__(self, verdicts):
        super().__init__()
        self.verdicts = verdicts

    async def judge(self, request):
        self.script = [self.verdicts[request.source]]
        return await super().judge(request)


@asynccontextmanager
async def pool(judge, *workers, options=OPTIONS):
    dispatcher = Dispatcher([judge], options, None, Prefilter(workers, options))
    yield dispatcher
    await dispatcher.close()


@pytest.mark.parametrize("stage", ["compile", "correctness"])
@pytest.mark.parametrize("status", list(EvalStatus))
def test_only_what_holds_on_a_gpu_too_is_final(status: EvalStatus, stage: str):
    final = {"rejected_static", "unsafe", "incorrect", "hacking", "decoy"}
    of_the_compiler = status is EvalStatus.COMPILE_ERROR and stage == "compile"
    assert is_final(verdict(status, stage)) == (status.value in final or of_the_compiler)


def test_a_crash_by_an_access_out_of_bounds_is_final():
    error = EvalError(stage="correctness", type="CompiledOutOfBounds", message="m")
    assert is_final(verdict(EvalStatus.CRASH).model_copy(update={"error": error}))


def predicted(low, high, **fields):
    fields = {"correctness": True, "decoy_kernel": False, "timing_source": "simulated", **fields}
    return verdict(EvalStatus.OK, speedup=(low + high) / 2, speedup_interval=(low, high), **fields)


async def judged(found, speedup=1.0):
    """Return the result of a candidate with this verdict of a worker, and how often a GPU judged it."""
    judge = Actor()
    async with pool(judge, Worker({"x": found}), options=replace(OPTIONS, prefilter_speedup=speedup)) as dispatcher:
        return await ask(dispatcher, "x"), len(judge.seen)


async def test_a_candidate_that_is_surely_slow_takes_no_gpu_time():
    slow, timed = await judged(predicted(0.5, 0.9, time_coverage=0.5))
    assert (slow.status, slow.env, timed) == (EvalStatus.OK, {"prefilter": "refused"}, 0)
    # What a model predicted is no time of a GPU.
    assert slow.speedup is slow.speedup_interval is slow.timing_source is slow.time_coverage is None


NOT_SURELY_SLOW = {
    "undecided": (predicted(0.9, 1.1), 1.0),
    "fast": (predicted(1.1, 2.0), 1.0),
    "recorded decoy": (predicted(0.5, 0.9, decoy_kernel=True), 1.0),
    "no interval": (verdict(EvalStatus.OK, correctness=True, decoy_kernel=False, speedup=0.5), 1.0),
    "slow, where no speedup is asked for": (predicted(0.1, 0.2), None),
}


@pytest.mark.parametrize("name", NOT_SURELY_SLOW)
async def test_a_gpu_decides_what_is_not_surely_slow(name):
    assert (await judged(*NOT_SURELY_SLOW[name]))[1] == 1


def test_workers_whose_verdict_may_be_final_do_all_trials():
    options = GymOptions(device="cuda", prefilter="cpu", correctness_trials=7)
    final = prefilter_options(replace(options, prefilter_speedup=1.0))
    assert (prefilter_options(options).correctness_trials, final.correctness_trials) == (1, 7)
    assert final.ablation


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"device": "cuda", "prefilter_speedup": 1.0}, "set the prefilter to cpu, or prefilter_speedup to null"),
        ({"device": "cpu", "prefilter": "cpu"}, "set the device to cuda, or the prefilter to off"),
        ({"device": "auto", "prefilter": "cpu"}, "set the device to cuda, or the prefilter to off"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, remedy):
    with pytest.raises(ConfigError, match=remedy):
        GymOptions(**options)


async def test_the_result_of_a_gpu_gets_the_workers_profile():
    judge = Actor()
    async with pool(judge, Worker({"right": verdict(EvalStatus.OK, profile=PROFILE)})) as dispatcher:
        assert (await ask(dispatcher, "right")).profile == PROFILE
    assert judge.seen == ["right"]


async def test_what_is_refused_reaches_no_gpu_and_all_else_does():
    verdicts = {
        "wrong": verdict(EvalStatus.INCORRECT), "right": verdict(EvalStatus.OK), "slow": verdict(EvalStatus.TIMEOUT),
        "unfit": TaskError("bfloat16"), "broken": InfraError("boom"),
    }  # fmt: skip
    judge = Actor()
    async with pool(judge, Worker(verdicts)) as dispatcher:
        wrong, *others = [await ask(dispatcher, source) for source in verdicts]
        stats = (await dispatcher.stats()).prefilter
    assert judge.seen == ["right", "slow", "unfit", "broken"]
    assert (wrong.status, wrong.env, wrong.attempts) == (EvalStatus.INCORRECT, {"prefilter": "refused"}, 1)
    assert wrong.kernel == "name of wrong"
    assert {(result.status, result.env.get("prefilter")) for result in others} == {(EvalStatus.OK, None)}
    assert stats is not None
    assert (stats.refused, stats.passed, stats.undecided) == (1, 1, 3)


async def test_seconds_saved_are_those_of_a_gpu():
    judge, seconds = Actor(), {"static": 9.0, "wait": 9.0, "load": 1.0, "correctness": 2.0, "clock": 3.0}
    wrong = {f"wrong {number}": verdict(EvalStatus.INCORRECT) for number in range(3)}
    right = verdict(EvalStatus.OK, stage_seconds=seconds)
    async with pool(Worker({"right": right}), Worker({"right": right, **wrong})) as dispatcher:
        for source in wrong:
            await ask(dispatcher, source)
        assert dispatcher.snapshot().prefilter.gpu_seconds_saved == 0  # nothing is known of a GPU yet
        await ask(dispatcher, "right")
        assert dispatcher.snapshot().prefilter.gpu_seconds_saved == 3 * 6.0
    assert not judge.seen


async def test_a_request_that_nobody_waits_for_reaches_no_gpu():
    judge, worker = Actor(), Worker({"x": verdict(EvalStatus.OK)})
    worker.gate = asyncio.Event()
    async with pool(judge, worker) as dispatcher:
        request = ask(dispatcher, "x")
        await settle()
        request.cancel()
        worker.gate.set()
        await settle()
        assert worker.seen == ["x"]
        assert not judge.seen


async def test_workers_that_cannot_start_are_reported_first():
    async with pool(Actor(), Actor(start=EnvironmentNotReady("no triton"))) as dispatcher:
        with pytest.raises(EnvironmentNotReady, match="no triton"):
            await dispatcher.ready()


def test_workers_judge_without_a_gpu_and_by_the_pools_rules():
    found = prefilter_options(GymOptions(device="cuda", prefilter="cpu", float32="tf32", gpus_per_judge=1.0))
    assert (found.device, found.gpus_per_judge, found.prefilter, found.num_judges) == ("cpu", 0.0, "off", 4)
    assert (found.float32, found.correctness_trials, found.memory_checks) == ("tf32", 1, "refuse")


@pytest.mark.processes
async def test_a_real_worker_passes_only_right_kernels():
    judge, process = Actor(), JudgeProcess(prefilter_options(OPTIONS), seed=5)
    sources = [HONEST, candidate("return self.right(x, y) + 1"), "import os\nos.system('ls')\n"]
    try:
        with ThreadPoolExecutor(1) as executor:
            async with pool(judge, LocalJudge(process, executor)) as dispatcher:
                task = Task(REFERENCE, task_id="fused")
                results = [await dispatcher.judge(EvalRequest(task, source)) for source in sources]
    finally:
        process.close()
    assert [result.status.value for result in results] == ["ok", "incorrect", "rejected_static"]
    assert judge.seen == [HONEST]


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_pool_uses_its_gpu_for_what_its_workers_let_pass(tmp_path, monkeypatch):
    """Through real processes; the GPU is a pretended one, whose judges write down when they use it."""
    _, journal = pretend_cuda(monkeypatch, tmp_path)
    recipe = {"compile_for": "sm_90", "timing_width": 0.05, "num_judges": 2, "gpus_per_judge": 0.5}
    options = replace(OPTIONS, static_check="off", lock_dir=str(tmp_path), correctness_trials=2, **recipe)
    tasks = [Task(f"{REFERENCE}\n# {name}", task_id=name) for name in ("wrong", "right")]
    with LocalPool(options, seed=5) as pool:
        journal.write_text("")  # starting is not judging
        sources = candidate("return self.right(x, y) * 2"), HONEST.replace("BLOCK=512)", "BLOCK=512, num_warps=64)")
        wrong, large = pool.evaluate_many([(tasks[0], source, "") for source in sources])
        assert wrong.status is EvalStatus.INCORRECT
        assert (large.status, large.error.type) == (EvalStatus.COMPILE_ERROR, "OutOfResources")
        assert not journal.read_text()
        (right,) = pool.evaluate_many([(tasks[1], HONEST, "")])
        assert right.status is EvalStatus.OK, right.error
        assert right.profile.launches[0].count == 1
        assert "clock begins" in journal.read_text()
        stats = pool.stats().prefilter
    assert stats is not None
    assert (stats.refused, stats.passed) == (2, 1)
    assert stats.gpu_seconds_saved > 0
