# SPDX-License-Identifier: Apache-2.0
"""Our two times beside those of `triton.testing.do_bench`, its CUDA-graph variant and a KernelBench-like loop.

Expected: `device` is what do_bench says, for both flush the cache and hide the host's work; the CUDA graph runs on a
warm cache, so it says less where a program fits into L2; `latency` is more than any of them by the host's work.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.gpu import clocks
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.programs import PROGRAMS
from benchmarks.gpu.setting import Setting
from verl_kernel.env.emulator import driver

POWERS, PRETENDED_POWERS = (14, 18, 22, 26), (8, 9, 10, 11)
ALIKE, LONG_MS = 0.1, 0.05
"""`device` and do_bench may differ by this share, for calls of at least this long."""
_SPARE_S = 5.0


def run(setting: Setting, findings: Findings) -> None:
    """One row per program and size."""
    ours = clocks.ours(setting)
    others = {} if setting.pretend else clocks.others()
    if setting.pretend:
        driver.activate()  # no judge sees these launches
        findings.unknown(", ".join(clocks.OTHERS))
    rows = []
    for power in PRETENDED_POWERS if setting.pretend else POWERS:
        for name, make in PROGRAMS.items():
            if setting.left_s() < _SPARE_S:
                findings.unknown(f"{name} at 2^{power}", "no time was left for it")
                continue
            call = make(power, "cpu" if setting.pretend else "cuda")
            call()  # compiled before any clock
            rows.append(row := {"program": name, "elements": f"2^{power}", **_times(call, {**ours, **others})})
            findings.row("milliseconds", **row)
            findings.row("ratios", program=name, elements=f"2^{power}", **_ratios(row))
    _check(rows, findings)


def _times(call: Callable[[], object], by: dict[str, clocks.Clock]) -> dict[str, object]:
    times: dict[str, object] = {}
    for name, clock in by.items():
        try:
            times[name] = clock(call)
        except Exception as exc:  # noqa: BLE001  a clock that cannot time this program must not cost the others theirs
            times[name] = f"{type(exc).__name__}: {exc}"
    return times


def _ratios(row: dict[str, object]) -> dict[str, float]:
    """Each of our times over each of the others."""
    pairs = [(one, other) for one in clocks.OURS for other in clocks.OTHERS]
    values = {f"{one} / {other}": (row.get(one), row.get(other)) for one, other in (*pairs, ("latency", "device"))}
    return {
        name: above / below
        for name, (above, below) in values.items()
        if isinstance(above, float) and isinstance(below, float) and below > 0
    }


def _check(rows: list[dict[str, object]], findings: Findings) -> None:
    """What must hold for the times to mean what their names say."""
    pairs = [(row, row.get("device"), row.get("do_bench")) for row in rows]
    long = [(row, a / b) for row, a, b in pairs if isinstance(a, float) and isinstance(b, float) and b >= LONG_MS]
    if not long:
        findings.unknown("whether `device` and do_bench agree")
        return
    far = [f"{row['program']} {row['elements']}: {ratio:.2f}" for row, ratio in long if abs(ratio - 1) > ALIKE]
    findings.check(f"device within {ALIKE:.0%} of do_bench from {LONG_MS} ms on", not far, ", ".join(far))
