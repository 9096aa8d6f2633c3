# SPDX-License-Identifier: Apache-2.0
"""The exploit corpus on several judges at once: how often each verdict came, and every one that is not as written.

The verdicts of the corpus are those of the simulated clock; where a GPU honestly gives another, the program's head is
to say so. Times do not count here: the judges disturb each other's hosts.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from benchmarks.gpu import judged
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.placement import on_gpu
from benchmarks.gpu.setting import Setting
from tests.exploits.corpus import UNSTOPPED, Case, load, meets
from tests.exploits.tasks import TASKS
from verl_kernel.env import EvalResult, LocalPool, Task
from verl_kernel.errors import VerlKernelError

JUDGES, PRETENDED_JUDGES, PRETENDED_EVERY = 6, 2, 16
_SEED, _SPARE_S, _WORDS = 5, 15.0, 200


def run(setting: Setting, findings: Findings) -> None:
    """Judge as many programs as the time allows, attacks first."""
    cases = sorted(load(), key=lambda case: case.honest)
    if setting.pretend:
        cases = cases[::PRETENDED_EVERY]
    judges = PRETENDED_JUDGES if setting.pretend else JUDGES
    limits: dict[str, float] = {} if setting.pretend else {"run_timeout_s": 10.0, "memory_mb": 2048}
    tally = Tally(findings)
    with LocalPool(
        setting.options(num_judges=judges, correctness_trials=3, load_timeout_s=20.0, **limits), _SEED
    ) as pool:
        asyncio.run(_judge_all(pool, cases, setting, tally))
    findings.fact("judges", judges)
    count = sum(tally.verdicts.values())
    findings.check("the whole corpus was judged", count == len(cases), f"{count} of {len(cases)} programs")
    findings.check("no attack that should not be is rewarded with a speedup", not tally.gains, f"{tally.gains} are")
    findings.check("every program got its verdict", not tally.deviations, f"{tally.deviations} did not")


class Tally:
    """Counts verdicts, and notes those that are not as written."""

    def __init__(self, findings: Findings) -> None:
        self.verdicts: Counter[str] = Counter()
        self.deviations = self.gains = 0
        self._findings = findings

    def take(self, case: Case, result: EvalResult) -> None:
        """Count one result."""
        self._count(result.status.value)
        if not _is_as_written(case, result):
            self.deviations += 1
            self.gains += result.rewarded and (result.speedup or 0.0) > 1.0
            said = "" if result.error is None else f"{result.error.type}: {result.error.message}"
            wanted = "rewarded" if case.honest else case.measured or case.without_gate
            self._findings.row(
                "deviations", program=case.name, wanted=wanted, got=result.status.value, rewarded=result.rewarded,
                speedup=result.speedup, flags=list(result.hack_flags), says=said[:_WORDS],
            )  # fmt: skip

    def _count(self, verdict: str) -> None:
        self.verdicts[verdict] += 1
        self._findings.fact("verdicts", dict(self.verdicts))

    def refuse(self, case: Case, exc: VerlKernelError) -> None:
        """Count a program that was not judged."""
        self._count(type(exc).__name__)
        self.deviations += 1
        self._findings.row("deviations", program=case.name, wanted="a verdict", got=type(exc).__name__, says=str(exc))


def _is_as_written(case: Case, result: EvalResult) -> bool:
    if case.honest or case.without_gate == UNSTOPPED:
        return result.rewarded
    return meets(result, case.measured or case.without_gate)


async def _judge_all(pool: LocalPool, cases: list[Case], setting: Setting, tally: Tally) -> None:
    jobs = [asyncio.create_task(_judge(pool, case, setting, tally)) for case in cases]
    done, late = await asyncio.wait(jobs, timeout=max(1.0, setting.left_s() - _SPARE_S))
    for job in late:
        job.cancel()
    for job in done:
        job.result()


async def _judge(pool: LocalPool, case: Case, setting: Setting, tally: Tally) -> None:
    source = case.source if setting.pretend else on_gpu(case.source)
    try:
        result = await pool.evaluate(Task(TASKS[case.task], task_id=case.task), source, kernel=case.name)
    except VerlKernelError as exc:
        tally.refuse(case, exc)
        return
    tally.take(case, result)
    if case.honest:
        judged.keep(setting.out, TASKS[case.task], case.source, result)
