# SPDX-License-Identifier: Apache-2.0
"""The static gate: honest code passes, known tricks do not, and no text makes it raise."""

import importlib
import sys
import types
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.static_check.gate_accepted import ACCEPTED
from tests.env.static_check.gate_programs import ENTRY, HEADER
from tests.env.static_check.gate_refused import REFUSED
from tests.env.static_check.gate_shapes import HOSTILE, indented
from tests.generated import draw_tasks
from tests.tiers import one_of_each, thinned
from verl_kernel.env.static_check import Violation, check
from verl_kernel.env.static_check.allowlist import OPEN_MODULES, refusal
from verl_kernel.generated_tasks.answers import all_answers
from verl_kernel.generated_tasks.kinds import Kind


def rules(source: str, mode: str = "coverage", **options: str) -> list[str]:
    return [item.rule for item in check(source, mode, **options)]


@pytest.mark.parametrize("case", one_of_each(REFUSED, key=lambda case: case[0]), ids=" ".join)
def test_a_way_around_is_closed_by_its_rule(case):
    rule, piece = case
    source, first = HEADER + piece + ENTRY, HEADER.count("\n") + 1
    found = check(source)
    assert rule in {item.rule for item in found}
    assert all(first <= item.line <= source.count("\n") and item.reason for item in found)
    assert check(source, "off") == []


@pytest.mark.parametrize("subject", ACCEPTED)
def test_honest_parts_pass(subject):
    piece, mode = ACCEPTED[subject], "coverage" if subject == "computing with torch" else "strict"
    compile(piece, "piece", "exec")
    first = "from __future__ import annotations\n"  # as Python 3.14 demands of a text that is only looked at too
    future = first * piece.startswith(first)
    assert check(future + HEADER + piece.removeprefix(future) + ENTRY, mode) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(8))
def test_generated_programs_pass(seed):
    (program,) = draw_tasks(1, Random(seed))
    for variant in all_answers(program, Random(2)):
        found = set(rules(variant.source))
        assert found == set() or (variant.kind is Kind.BROKEN and found in ({"syntax"}, {"unbound"}))


def test_open_modules_lead_nowhere_else():
    """Every module that is an attribute of an open one is open itself or refused."""
    reached, found = 0, {name: vars(importlib.import_module(name)) for name in OPEN_MODULES}
    for name in OPEN_MODULES - {"triton.runtime.driver"}:
        for attribute, value in found[name].items():
            if isinstance(value, types.ModuleType) and f"{name}.{attribute}" not in OPEN_MODULES:
                reached += 1
                assert refusal(f"{name}.{attribute}"), f"{name}.{attribute} is open"
    assert reached > 50


@pytest.mark.parametrize("cookie", ["utf-7", "rot13", "latin-1", "nonsense"])
def test_source_is_read_as_it_will_be_imported(cookie):
    assert rules(f"# coding: {cookie}\n{HEADER}{ENTRY}") == ["syntax"]
    assert check(f"# coding: utf-8\n{HEADER}{ENTRY}") == []


MAIN = "\nif __name__ == '__main__':\n    import sys\n    sys.exit()\n"


@pytest.mark.parametrize("test", ["__name__ == '__main__'", "'__main__' == __name__"])
def test_the_main_block_is_not_read_because_it_never_runs(test):
    main = MAIN.replace("__name__ == '__main__'", test)
    assert check(HEADER + ENTRY + main) == []
    assert check(HEADER + ENTRY + main.replace("if ", "if not "))
    assert check(HEADER + ENTRY + main.replace("==", "!="))
    assert check(HEADER + ENTRY + main + "else:\n    import ctypes\n")
    assert check(HEADER + "__name__ = '__main__'\n" + ENTRY + main)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* is Python 3.11's")
def test_a_group_of_exceptions_is_no_way_around_the_rule_on_try():
    assert rules(HEADER + "try:\n    import math\nexcept* ImportError:\n    pass\n" + ENTRY) == ["try"]


DEEP = {
    399: lambda signs: "x = " + "-" * (signs - 1) + "1\n",  # the sign of assignment is one of them
    40: indented,
    150: lambda branches: "if 0:\n    pass\n" + "elif 0:\n    pass\n" * branches,
}


@pytest.mark.parametrize("most", DEEP)
def test_text_may_nest_so_deep_and_no_deeper(most):
    assert check(HEADER + DEEP[most](most) + ENTRY) == []
    assert "nested or chained too deeply" in check(HEADER + DEEP[most](most + 1) + ENTRY)[0].reason


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("class ModelNew:\n    def forward(self, x): return x", "base"),
        (ENTRY + ENTRY, "entry"),
        ("", "entry"),
        ("class ModelNew2(nn.Module): pass", "entry"),
    ],
)
def test_the_entry_class_is_one_module(source, rule):
    assert rules(HEADER + source) == [rule]


@pytest.mark.parametrize("piece", ["@torch.compile\ndef f(x): return x", "def f(x): return torch.compile(helper)(x)"])
def test_the_remedy_is_said_wherever_a_name_stands(piece):
    assert {item.reason for item in check(HEADER + piece + ENTRY)} == {
        "torch.compile is not allowed: write the kernel in Triton"
    }


def test_the_entry_class_may_have_another_name():
    assert check(HEADER + "class NetNew(nn.Module): pass", entry="NetNew") == []


FORWARD = HEADER + "class ModelNew(nn.Module):\n    "
COMPUTE = [
    "def forward(self, x): return torch.softmax(x, -1)",
    "def forward(self, x): return F.relu(x)",
    "def forward(self, x): return x.sum()",
    "def forward(self, x): return x @ x",
    "def __init__(self):\n        super().__init__(); self.norm = nn.LayerNorm(4)\n"
    "    def forward(self, x): return self.norm(x)",
]


INHERIT = [
    "class Own(nn.Softmax): pass",
    "class Own(nn.Linear):\n    def forward(self, x): return super().forward(x)",
    "class Own(nn.Sequential):\n    def other(self, x): return x",
]


@pytest.mark.parametrize("layer", INHERIT)
def test_strict_refuses_a_layer_that_computes_by_torch(layer):
    assert check(HEADER + layer + ENTRY) == []
    assert rules(HEADER + layer + ENTRY, "strict") == ["torch"]


@pytest.mark.parametrize("body", COMPUTE)
def test_strict_refuses_what_coverage_only_counts(body):
    assert check(FORWARD + body) == []
    assert "torch" in rules(FORWARD + body, "strict")


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(HOSTILE, 4))
def test_no_text_makes_it_raise(name):
    found = check(HOSTILE[name], "strict")
    assert {item.rule for item in found} - {"torch"} or "class ModelNew" in HOSTILE[name]
    assert all(type(item) is Violation and item.line >= 1 and item.reason for item in found)


@given(st.text(max_size=200))
def test_random_text_is_refused_quietly(text):
    assert check(text)


@given(st.lists(st.sampled_from("".join(ACCEPTED.values()).splitlines()), max_size=40))
def test_shuffled_code_is_judged_quietly(lines):
    check("\n".join(lines), "strict")


def test_unknown_mode():
    with pytest.raises(ValueError, match="strict, coverage or off"):
        check("", "lenient")
