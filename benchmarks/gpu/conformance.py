# SPDX-License-Identifier: Apache-2.0
"""The gym's conformance suite on this device: programs that must get the same verdicts everywhere."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.setting import Setting
from verl_kernel.env import LocalPool
from verl_kernel.env.conformance.suite import CASES, OPTIONS, SEED, check_case

_SPARE_S = 10.0


def run(setting: Setting, findings: Findings) -> None:
    """One check per case."""
    with LocalPool(replace(OPTIONS, device=setting.device_name), SEED) as pool:
        for name in CASES:
            if setting.left_s() < _SPARE_S:
                findings.unknown(name, "no time was left for it")
                continue
            case = check_case(pool, name)
            findings.check(name.replace("_", " "), case.passed, case.detail)
