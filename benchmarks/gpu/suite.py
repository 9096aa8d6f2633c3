# SPDX-License-Identifier: Apache-2.0
"""tests/gpu, with a junit file; every test's outcome is on the disk as soon as it is known."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.setting import ROOT, Setting

JUNIT = "junit.xml"
ORDER = ("test_device.py", "test_verdicts.py", "test_attacks.py", "test_faults.py")
"""Parts before the whole, and what may upset the driver last."""
_WORDS = 300


class Witness:
    """A plugin of pytest that notes each test as it ends."""

    def __init__(self, findings: Findings) -> None:
        self.counts: Counter[str] = Counter()
        self._findings = findings

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that ran, failed to start or was skipped."""
        if report.when != "call" and report.passed:
            return
        self.counts[report.outcome] += 1
        words = report.longreprtext[-_WORDS:] if report.failed else ""
        if report.skipped and isinstance(report.longrepr, tuple):
            words = report.longrepr[2]
        name = report.nodeid.removeprefix("tests/gpu/")
        self._findings.row("tests", test=name, outcome=report.outcome, seconds=report.duration, words=words)


def run(setting: Setting, findings: Findings) -> None:
    """Run them in this process; an interrupt still leaves a junit file."""
    folder, junit = ROOT / "tests" / "gpu", Path(setting.out) / JUNIT
    files = sorted(folder.glob("test_*.py"), key=lambda path: ORDER.index(path.name) if path.name in ORDER else 0)
    options = [f"--rootdir={ROOT}", f"--confcutdir={folder}", f"--junitxml={junit}", "-pno:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestConfigWarning"]  # settings of plugins that need not be there
    witness = Witness(findings)
    pytest.main([*options, *map(str, files)], plugins=[witness])
    junit.write_text(re.sub(' hostname="[^"]*"', "", junit.read_text()))
    counts = dict(witness.counts)
    findings.fact("outcomes", counts)
    if setting.pretend and set(counts) == {"skipped"}:
        findings.unknown("tests/gpu")
    else:
        findings.check("all of tests/gpu passes", "passed" in counts and "failed" not in counts, str(counts))
