# SPDX-License-Identifier: Apache-2.0
"""Prints where the seconds of a run go, by file: `make test PYTEST_ARGS="-p tests.durations"`.

Seconds are those of the processes that run tests, added up; those of judges, trainers and other programs that a test
waits for are in them. Processor seconds hold those of all processes below; on a busy machine they alone compare.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import psutil
import pytest

SHOWN = 40
"""Rows of the table; the files below are one row."""


class Durations:
    """Collects the seconds of a process's set-up and of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.processes: list[dict[str, float]] = []
        """Of each process that ran tests: seconds until its tests were collected, and of processor time for that."""
        self.files: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Of each file: seconds by phase (setup, call, teardown), its tests, and processor seconds."""
        self._begun = 0.0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note how long this process took to import and to collect."""
        collected = {"seconds": time.time() - _started(), "processor seconds": time.process_time()}
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["collected"] = collected
        elif session.items:
            self.processes.append(collected)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a process of several noted."""
        self.processes += [node.workeroutput["collected"]] if hasattr(node, "workeroutput") else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Note what all processes have used before a test."""
        self._begun = processor_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Let the last report of a test carry what they have used for it."""
        if call.when == "teardown":
            item.user_properties.append(("processor", processor_s() - self._begun))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the seconds of a phase of a test."""
        counts = self.files[report.nodeid.partition("::")[0]]
        counts[report.when] += report.duration
        counts["tests"] += report.when == "call"
        counts["processor"] += dict(report.user_properties).get("processor", 0.0) if report.when == "teardown" else 0.0

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the tables."""
        terminalreporter.section("seconds of each process until its tests were collected")
        for collected in self.processes:
            terminalreporter.write_line(", ".join(f"{name} {value:.1f}" for name, value in collected.items()))
        terminalreporter.section("seconds by file")
        for line in self._rows():
            terminalreporter.write_line(line)

    def _rows(self) -> list[str]:
        longest = sorted(self.files.items(), key=lambda file: -_seconds(file[1]))
        rest, total = Counter[str](), Counter[str]()
        for place, (_, counts) in enumerate(longest):
            total.update(counts)
            rest.update(counts if place >= SHOWN else {})
        rows = [*longest[:SHOWN], ("all other files", rest), ("all files", total)]
        head = ["| file | tests | set-up | calls | tear-down | processor |", "|---|--:|--:|--:|--:|--:|"]
        return head + [
            f"| {name} | {counts['tests']:.0f} | {counts['setup']:.1f} | {counts['call']:.1f} "
            f"| {counts['teardown']:.1f} | {counts['processor']:.1f} |"
            for name, counts in rows
        ]


def _seconds(counts: Counter[str]) -> float:
    return counts["setup"] + counts["call"] + counts["teardown"]


def processor_s() -> float:
    """What this process and all below it have used, those among them that have ended."""
    total, me = 0.0, psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _started() -> float:
    """When this process began, in seconds of the clock."""
    return psutil.Process().create_time()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations(config))
