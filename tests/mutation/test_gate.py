# SPDX-License-Identifier: Apache-2.0
"""Each statement with which the gate refuses a text is the only one that refuses some text."""

import sys
from collections import defaultdict

import pytest

from tests.env.static_check.gate_programs import ENTRY, HEADER
from tests.env.static_check.gate_refused import REFUSED
from tests.env.static_check.gate_shapes import HOSTILE
from tests.env.static_check.test_static_check import COMPUTE, FORWARD
from tests.exploits.corpus import load
from tests.mutation.off import switched_off
from tests.mutation.sites import gate_sites
from verl_kernel.env.static_check import check
from verl_kernel.env.static_check.names import Violation

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
    return [(text, "coverage") for text in (*texts, *MORE, *unread)] + [(FORWARD + body, "strict") for body in COMPUTE]


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
