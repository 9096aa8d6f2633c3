# SPDX-License-Identifier: Apache-2.0
"""A/A: references against themselves, through judge and runner like any candidate; their speedup must be 1.

What differs from 1 is what the clock makes of two processes, not of two programs.
"""

from __future__ import annotations

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.rates import REFERENCE
from benchmarks.gpu.setting import Setting
from verl_kernel.env import EvalResult, Task
from verl_kernel.env.clocks.statistics import AA_BAND
from verl_kernel.env.conformance.aa import aa_options, judged_against_itself
from verl_kernel.env.judge.judge import Judge
from verl_kernel.errors import VerlKernelError

POWERS, PRETENDED_POWERS = (12, 18, 22, 24, 25), (10, 13)
_SPARE_S = 10.0


def run(setting: Setting, findings: Findings) -> None:
    """One row per size and protocol, one check per protocol."""
    powers = PRETENDED_POWERS if setting.pretend else POWERS
    deviations: dict[str, list[float]] = {}
    for timing, some in (("device", powers), ("kernelgym", powers[1:2])):  # `latency` is taken beside `device`
        with Judge(aa_options(setting.options(timing=timing, correctness_trials=1)), seed=1) as judge:
            for power in some:
                if setting.left_s() < _SPARE_S:
                    findings.unknown(f"2^{power} elements by {timing}", "no time was left for it")
                elif result := _result(judge, power, findings):
                    for protocol, times in result.times.items():
                        deviations.setdefault(protocol, []).append(times.speedup - 1)
                        findings.row("speedups", elements=f"2^{power}", **_columns(protocol, result))
    for protocol, values in deviations.items():
        worst = max(values, key=abs)
        what = f"{protocol}: a program is as fast as itself to {AA_BAND:.0%}"
        findings.check(what, abs(worst) <= AA_BAND, f"{worst:+.2%} at worst")


def _result(judge: Judge, power: int, findings: Findings) -> EvalResult | None:
    """The verdict on a task of this size, or None after a failed check: one that cannot be timed is a finding."""
    try:
        return judged_against_itself(judge, Task(REFERENCE.format(size=1 << power), task_id=f"2^{power}"))
    except VerlKernelError as exc:
        findings.check(f"2^{power} elements can be timed against themselves", False, str(exc))
        return None


def _columns(protocol: str, result: EvalResult) -> dict[str, object]:
    times = result.times[protocol]
    return {
        "protocol": protocol, "status": result.status.value, "candidate, ms": times.kernel_ms.median,
        "reference, ms": times.reference_ms.median, "speedup": times.speedup, "speedup_low": times.speedup_low,
        "calls": times.kernel_ms.n, "settled": result.env.get("settled"),
    }  # fmt: skip
