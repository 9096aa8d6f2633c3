# SPDX-License-Identifier: Apache-2.0
"""Compares the run in a folder with the run that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_kernel.bench.records import RunHeader, SuiteTask
from verl_kernel.bench.suites import Suite
from verl_kernel.errors import ConfigError

_OF_THE_SUITE = {"suite", "suite_hash", "prompt_hash", "tasks"}


def refuse_difference(old: RunHeader, new: RunHeader, tasks: Sequence[SuiteTask], suite: Suite, folder: Path) -> None:
    """Refuse to continue a different run; the start time may differ.

    Args:
        old: header of the run that the folder holds.
        new: header of the run that is asked for.
        tasks: tasks of the run in the folder.
        suite: suite of the run that is asked for.
        folder: folder of the run.

    Raises:
        ConfigError: the runs differ; the message names the first difference.
    """
    was, now = (header.model_dump(mode="json", exclude={"started"}) for header in (old, new))
    key = next((key for key in now if was[key] != now[key]), None)
    if key is None:
        return
    if key in _OF_THE_SUITE:
        what = _other_suite(old, new, tasks, suite)
    else:
        name, before, after = _narrowed(key, was[key], now[key])
        what = f"a run whose {name} is {before!r}, and this one's is {after!r}"
    raise ConfigError(f"{folder} holds {what}: repeat the command of that run, or name another folder with --out")


def _other_suite(old: RunHeader, new: RunHeader, tasks: Sequence[SuiteTask], suite: Suite) -> str:
    if (old.suite, old.tasks) != (new.suite, new.tasks):
        return f"a run on {old.tasks} tasks of suite {old.suite}, and this one is on {new.tasks} of suite {new.suite}"
    known = {one.task_id: one.task_hash for one in tasks}
    asked = {item.task.task_id: item.task.text_hash for item in suite.tasks}
    if missing := next((name for name in asked if known and name not in known), None):
        return f"a run on suite {old.suite} without task {missing}, which this one asks"
    if other := next((name for name in asked if known.get(name, asked[name]) != asked[name]), None):
        return f"a run on suite {old.suite} in which task {other} has another reference than now"
    what = "prompts" if old.suite_hash == new.suite_hash else "tasks"
    return f"a run on suite {old.suite} whose {what} are others than now"


def _narrowed(key: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Return key and values; for two mappings, those of the first entry that differs."""
    if isinstance(was, dict) and isinstance(now, dict):
        entry = next(name for name in sorted({*was, *now}) if was.get(name) != now.get(name))
        return f"{key}.{entry}", was.get(entry), now.get(entry)
    return key, was, now
