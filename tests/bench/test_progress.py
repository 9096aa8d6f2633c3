# SPDX-License-Identifier: Apache-2.0
"""The line that says how far a run is."""

import io

import pytest
from rich.console import Console

from verl_kernel.bench import session
from verl_kernel.bench.session import RunProgress


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(session.time, "monotonic", lambda: now[0])
    return now


def test_the_estimate_follows_from_this_runs_pace_alone(clock):
    told = io.StringIO()
    with RunProgress("turns", 100, done=40, console=Console(file=told, width=200)) as shown:
        assert shown.line == "40 of 100 turns, 0 correct"
        clock[0] += 20.0
        shown.note(True)
        shown.note(False)
        assert shown.line == "42 of 100 turns, 1 correct, about 10 min left"
        shown.shorten(50)
        assert shown.line == "42 of 50 turns, 1 correct, about 80 s left"
        assert told.getvalue() == ""
        clock[0] += 11.0
        shown.note(True)
    assert told.getvalue() == "43 of 50 turns, 2 correct, about 72 s left\n"
