# SPDX-License-Identifier: Apache-2.0
"""Each check of the tables and of the gate, switched off, changes what comes of something that it objects to."""

import sys
from collections import defaultdict
from typing import get_args

import pytest

from tests.env.static_check.gate_programs import ENTRY, HEADER
from tests.env.static_check.gate_refused import REFUSED
from tests.env.static_check.gate_shapes import HOSTILE
from tests.env.static_check.test_static_check import COMPUTE, FORWARD, INHERIT
from tests.exploits.corpus import load
from tests.mutation import behaviour_table, judge_table, task_table, watch_table
from tests.mutation.off import switched_off
from tests.mutation.shown import Quick, outcome
from tests.mutation.shown import judges as all_judges
from tests.mutation.sites import gate_sites, named_sites, unnamed_sites
from verl_kernel.env import KINDS, EvalStatus
from verl_kernel.env.reference.defects.findings import Defect
from verl_kernel.env.static_check import check
from verl_kernel.env.static_check.names import Violation
from verl_kernel.env.tamper.hack_flags import HackFlag

SITES = named_sites()
TABLE = {**judge_table.TABLE, **watch_table.TABLE, **task_table.TABLE}
CASES = [
    name if isinstance(shown, Quick) else pytest.param(name, marks=[pytest.mark.processes, pytest.mark.exhaustive])
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


GATE = gate_sites()
LINES = {(str(site.file), line): site for site in GATE for line in range(site.line, site.last_line + 1)}
MORE = [
    HEADER + "class ModelNew:\n    def forward(self, x): return x",
    HEADER + "class Other(nn.Module):\n    pass",
    HEADER + "class Meta:\n    pass\n\nclass Kept(nn.Module, metaclass=Meta):\n    pass" + ENTRY,
]
"""Texts that other tests have in pieces only."""


def refused() -> list[tuple[str, str]]:
    """Texts that the gate refuses, with its mode."""
    texts = [case.source for case in load() if not case.honest]
    texts += [HEADER + piece + ENTRY for _, piece in REFUSED]
    unread = [text for text in HOSTILE.values() if len(text) < 100]
    strict = [FORWARD + body for body in COMPUTE] + [HEADER + layer + ENTRY for layer in INHERIT]
    return [(text, "coverage") for text in (*texts, *MORE, *unread)] + [(text, "strict") for text in strict]


@pytest.fixture(scope="module")
def refused_by_one():
    """By check, texts that no other one refuses."""
    found, reached = defaultdict(list), set()
    make = Violation.__init__

    def seen(self, *args):
        frame = sys._getframe(1)
        while frame is not None and (frame.f_code.co_filename, frame.f_lineno) not in LINES:
            frame = frame.f_back
        reached.add(LINES[frame.f_code.co_filename, frame.f_lineno] if frame else None)
        make(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Violation, "__init__", seen)
        for text, mode in refused():
            reached.clear()
            check(text, mode)
            if len(reached) == 1:
                found[reached.pop()].append((text, mode))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("site", GATE, ids=lambda site: f"{site.module}:{site.function}:{site.line}")
def test_without_it_some_text_passes(site, refused_by_one):
    assert refused_by_one[site], "no text is refused by this check alone: add one to gate_refused.py"
    text, mode = refused_by_one[site][0]
    assert check(text, mode)
    with switched_off(site):
        assert check(text, mode) == []
