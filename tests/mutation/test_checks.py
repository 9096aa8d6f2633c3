# SPDX-License-Identifier: Apache-2.0
"""Each check of the tables, switched off, changes what comes of something that it objects to."""

from typing import get_args

import pytest

from tests.mutation import behaviour_table, judge_table, task_table, watch_table
from tests.mutation.off import switched_off
from tests.mutation.shown import Quick, outcome
from tests.mutation.shown import judges as all_judges
from tests.mutation.sites import named_sites, unnamed_sites
from verl_kernel.env import KINDS, EvalStatus
from verl_kernel.env.reference.defects.findings import Defect
from verl_kernel.env.tamper.hack_flags import HackFlag

SITES = named_sites()
TABLE = {**judge_table.TABLE, **watch_table.TABLE, **task_table.TABLE}
NEEDS_PROCESSES = [pytest.mark.processes, pytest.mark.exhaustive]
CASES = [
    name if isinstance(shown, Quick) else pytest.param(name, marks=NEEDS_PROCESSES)
    for name, (_, shown) in TABLE.items()
]


@pytest.fixture(scope="module")
def judges(judge_processes):
    with all_judges(judge_processes) as judges:
        yield judges


def test_every_check_has_a_name():
    """`# check: name` beside the statement that objects, or in the line above it."""
    assert [f"{site.file}:{site.line}" for site in unnamed_sites()] == []


def test_every_check_has_a_line():
    assert sorted(TABLE) == sorted(SITES)


def test_every_kind_of_trial_has_a_line():
    assert {f"trials: {kind}" for kind in KINDS if kind != "drawn"} <= behaviour_table.TABLE.keys()


@pytest.mark.parametrize(("values", "unsaid"), [
    ([flag.value for flag in HackFlag], ["launch_raised"]),  # of which tests/env/clocks/test_profile.py knows
    ([status.value for status in EvalStatus], ["load_error", "infra_error"]),  # what a runner says, and ours
    (get_args(Defect), []),
], ids=["flags", "statuses", "defects"])  # fmt: skip
def test_every_flag_status_and_defect_has_a_line(values, unsaid):
    lines = [*TABLE.values(), *(line[1:] for line in behaviour_table.TABLE.values()), *behaviour_table.REMOTE.values()]
    said = "\n".join(wanted for wanted, _ in lines).lower().replace("_", "")
    assert [value for value in values if value.replace("_", "") not in said] == unsaid


@pytest.mark.parametrize("name", CASES)
def test_without_it_the_outcome_is_another(name, judges):
    wanted, shown = TABLE[name]
    with_it = outcome(shown, judges)
    assert wanted in with_it
    with switched_off(SITES[name]):
        without = outcome(shown, judges)
    assert without != with_it, without
    assert wanted not in without, without
