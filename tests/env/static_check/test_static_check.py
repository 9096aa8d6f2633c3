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
from tests.env.static_check.gate_programs import ENTRY as MODEL
from tests.env.static_check.gate_programs import HEADER as PRELUDE
from tests.env.static_check.gate_refused import REFUSED
from tests.generated import draw_tasks
from verl_kernel.env.static_check import Violation, check
from verl_kernel.env.static_check.allowlist import OPEN_MODULES, refusal
from verl_kernel.world.answers import all_answers
from verl_kernel.world.kinds import Kind

HONEST = '''
"""Fused kernel; we eval nothing, open nothing, try nothing: `exec(open(x))`, __import__, getattr(x, "__class__")."""
from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as fast

torch.backends.cuda.matmul.allow_tf32 = True
HALF = 7 // 2  # a comment with // and "eval("


@dataclass
class Shape:
    rows: int
    columns: int = 4 // 2


@triton.jit
def activate(x):
    return libdevice.tanh(x) * fast.erf(x) + tl.math.exp(x) * tl.sigmoid(x)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def rows(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + i
    tl.store(o + at, activate(tl.load(x + at, mask=i < n, other=0.0)), mask=i < n)


@triton.autotune(configs=[triton.Config({"B": 64}, num_warps=4)], key=["n"])
@triton.jit
def scale(x, o, n, factor, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@functools.lru_cache
def processors() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


class ModelNew(nn.Module):
    def __init__(self, d: int, eps: Optional[float] = None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d))
        self.processors = processors()
        self.driver = triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        x = input.contiguous()
        assert x.is_cuda and x.dtype == torch.float32
        shape = Shape(*x.shape)
        vars, compile = math.sqrt(2.0), 1
        mid, out = torch.empty_like(x), torch.empty_like(x)
        with torch.cuda.device(x.device):
            rows[(shape.rows,)](x, mid, shape.columns)
            scale[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](mid, out, x.numel(), vars * compile)
        if hasattr(self, "extra") and getattr(self, "extra", None):
            out = out.view(x.shape)
        return out


if __name__ == "__main__":
    print(ModelNew(4)(torch.randn(2, 4, device="cuda")))
    torch.cuda.synchronize()
'''


@pytest.mark.parametrize("mode", ["strict", "coverage", "off"])
def test_honest_code_passes(mode):
    assert check(HONEST, mode) == []


TRICKS = {
    "import sys": "import",
    "import torch.utils.cpp_extension": "import",
    "from torch.utils.cpp_extension import load_inline": "import",
    "from torch import _C": "import",
    "from torch import ops": "import",
    "from triton.language import *": "import",
    "from . import secrets": "import",
    "import ctypes as c": "import",
    "import sys, math": "import",
    "exec('1')": "builtin",
    "run = eval": "builtin",
    "open('/tmp/x')": "builtin",
    "__import__('os')": "builtin",
    "globals()['x'] = 1": "builtin",
    "def f():\n    return vars()": "builtin",
    "class A:\n    f = open": "builtin",
    "g = lambda: compile('1', 'x', 'eval')": "builtin",
    "f = open\nopen = 3": "builtin",
    "setattr(torch, 'allclose', None)": "builtin",
    "__builtins__['open']": "name",
    "x = __loader__": "name",
    "getattr(torch, '_C')": "getattr",
    "getattr(torch, 'ops')": "getattr",
    "getattr(torch, 'o' + 'ps')": "getattr",
    "g = getattr": "getattr",
    "(lambda: 0).__globals__": "attribute",
    "().__class__.__bases__": "attribute",
    "torch._C": "attribute",
    "torch.ops.aten.mm": "attribute",
    "t = torch\nt.compile": "attribute",
    "c, d = torch.cuda, 1\nc.Stream()": "attribute",
    "(k := torch.utils)\nk.dlpack": "attribute",
    "torch.load('x')": "attribute",
    "triton.runtime.interpreter": "attribute",
    "torch.allclose = lambda *a: True": "assignment",
    "E = torch.cuda.Event\nE.elapsed_time = lambda *a: 1e-3": "assignment",
    "n = 7 // 2; torch.cuda.Event.elapsed_time = 1": "assignment",
    "torch.nn.Module.forward = None": "assignment",
    "tl.load = None": "assignment",
    "del torch.randn": "assignment",
    "for torch.x in [1]: pass": "assignment",
    "torch.x += 1": "assignment",
    "with a as torch.y: pass": "assignment",
    "math.table['x'] = 1": "assignment",
    "try:\n    pass\nexcept Exception:\n    pass": "try",
    "try:\n    import math\n    f()\nexcept Exception:\n    pass": "try",
    "try:\n    pass\nfinally:\n    pass": "try",
    "class Evil(torch.Tensor): pass": "base",
    "class Evil(nn.Linear): pass": "base",
    "class Evil(Model): pass": "base",
    "class Evil(nn.Module, metaclass=M): pass": "base",
    "class Evil:\n    def __getattr__(self, n): return n": "method",
    "class Evil:\n    def __torch_function__(self, *a): return 1": "method",
}
HEADER = "import math\nimport torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
ENTRY = "\nclass ModelNew(nn.Module):\n    pass\n"


@pytest.mark.parametrize(("trick", "rule"), TRICKS.items())
def test_tricks_are_refused(trick, rule):
    found = check(HEADER + trick + ENTRY)
    assert rule in {item.rule for item in found}
    assert all(HEADER.count("\n") < item.line <= (HEADER + trick).count("\n") + 1 for item in found)
    assert check(HEADER + trick + ENTRY, "off") == []


@pytest.mark.parametrize("piece", REFUSED, ids=lambda piece: piece[:40])
def test_ways_around_are_closed(piece):
    found = check(PRELUDE + piece + MODEL)
    assert found
    assert {item.rule for item in found} != {"syntax"}
    first, last = PRELUDE.count("\n") + 1, (PRELUDE + piece + MODEL).count("\n")
    assert all(first <= item.line <= last and item.reason for item in found)


@pytest.mark.parametrize("piece", ACCEPTED, ids=lambda piece: piece[:40])
def test_honest_pieces_pass(piece):
    compile(piece, "piece", "exec")
    assert check(PRELUDE + piece + MODEL) == []


def test_generated_programs_pass():
    for program in draw_tasks(8, Random(1)):
        for variant in all_answers(program, Random(2)):
            rules = {item.rule for item in check(variant.source)}
            assert rules == set() or (variant.kind is Kind.BROKEN and rules in ({"syntax"}, {"unbound"}))


def test_open_modules_lead_nowhere_else():
    """Every module that is an attribute of an open one is open itself or refused."""
    reached = 0
    for name in OPEN_MODULES - {"triton.runtime.driver"}:
        for attribute, value in vars(importlib.import_module(name)).items():
            if isinstance(value, types.ModuleType) and f"{name}.{attribute}" not in OPEN_MODULES:
                reached += 1
                assert refusal(f"{name}.{attribute}"), f"{name}.{attribute} is open"
    assert reached > 50


def test_every_open_module_exists():
    for name in OPEN_MODULES:
        importlib.import_module(name)


@pytest.mark.parametrize("cookie", ["utf-7", "rot13", "latin-1", "nonsense"])
def test_source_is_read_as_it_will_be_imported(cookie):
    assert [item.rule for item in check(f"# coding: {cookie}\n{PRELUDE}{MODEL}")] == ["syntax"]
    assert check(f"# coding: utf-8\n{PRELUDE}{MODEL}") == []


def test_the_main_block_is_not_read_because_it_never_runs():
    main = "\nif __name__ == '__main__':\n    import sys\n    sys.exit()\n"
    assert check(PRELUDE + MODEL + main) == []
    assert check(PRELUDE + MODEL + main + "else:\n    import sys\n")
    assert check(PRELUDE + MODEL + main.replace("==", "!="))
    assert check(PRELUDE + "__name__ = '__main__'\n" + MODEL + main)


def test_the_main_block_may_be_written_either_way_round():
    main = "\nif {}:\n    import sys\n    sys.exit()\n"
    for test in ('__name__ == "__main__"', "'__main__' == __name__"):
        assert check(PRELUDE + MODEL + main.format(test)) == []
        assert check(PRELUDE + MODEL + main.format(f"not {test}"))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* is Python 3.11's")
def test_a_group_of_exceptions_is_no_way_around_the_rule_on_try():
    group = "try:\n    import math\nexcept* ImportError:\n    pass\n"
    assert [item.rule for item in check(PRELUDE + group + MODEL)] == ["try"]


def chained(signs: int) -> str:
    return "x = " + "-" * (signs - 1) + "1\n"  # the sign of assignment is one of them


def indented(levels: int) -> str:
    return "".join(f"{' ' * level}if 1:\n" for level in range(levels)) + " " * levels + "pass\n"


def branched(branches: int) -> str:
    return "if 0:\n    pass\n" + "elif 0:\n    pass\n" * branches


@pytest.mark.parametrize(("text", "most"), [(chained, 399), (indented, 40), (branched, 150)])
def test_text_may_nest_so_deep_and_no_deeper(text, most):
    assert check(PRELUDE + text(most) + MODEL) == []
    assert "nested or chained too deeply" in check(PRELUDE + text(most + 1) + MODEL)[0].reason


def test_a_model_must_be_a_module():
    assert [item.rule for item in check(PRELUDE + "class ModelNew:\n    def forward(self, x): return x")] == ["base"]
    assert [item.rule for item in check(PRELUDE + MODEL + MODEL)] == ["entry"]


def test_the_entry_class_must_exist():
    assert [item.rule for item in check(HEADER)] == ["entry"]
    assert check(HEADER + "class NetNew(nn.Module): pass", entry="NetNew") == []
    assert [item.rule for item in check(HEADER + "class ModelNew2(nn.Module): pass")] == ["entry"]


FORWARD = HEADER + "import torch.nn.functional as F\n" + ENTRY.replace("pass", "{}")
COMPUTE = [
    "def forward(self, x): return torch.softmax(x, -1)",
    "def forward(self, x): return F.relu(x)",
    "def forward(self, x): return x.sum()",
    "def forward(self, x): return x @ x",
    "def __init__(self):\n        super().__init__(); self.norm = nn.LayerNorm(4)\n"
    "    def forward(self, x): return self.norm(x)",
]


@pytest.mark.parametrize("body", COMPUTE)
def test_strict_refuses_what_coverage_only_counts(body):
    assert check(FORWARD.format(body), "coverage") == []
    assert "torch" in {item.rule for item in check(FORWARD.format(body), "strict")}


BOMBS = [
    "",
    "\0",
    "\ud800",
    "def f(:",
    "# -*- coding: rot13 -*-\nimport os",
    "# -*- coding: nonsense -*-",
    "\ufeffimport os",
    "(" * 50_000,
    "-" * 50_000 + "1",
    "1" + "+1" * 50_000,
    "a" + ".b" * 50_000,
    "lambda:" * 10_000 + "1",
    "x" * 100_000,
    "if 1:\n" + "".join(" " * depth + "if 1:\n" for depth in range(1, 200)),
    "a0 = torch\n" + "\n".join(f"a{i} = a{i + 1}" for i in range(3000, 0, -1)),
    "import torch\na = torch\n" + "\n".join(f"a = a.x{i}" for i in range(2000)),
    "\n".join("getattr(x, 'y')" for _ in range(5000)),
    "\n".join("open" for _ in range(10_000)),
    "return 1",
    "nonlocal x",
    "\\",
    "'''",
    "f'{" * 100,
    "10" * 40_000,
    "not " * 25_000 + "1",
    "a" + "()" * 49_000,
    "f'{" + "-" * 90_000 + "1}'",
    "if a:\n p\n" + "elif a:\n p\n" * 9000,
    "import functools\n" + "\n".join("@functools.cache\ndef f(): f()" for _ in range(2500)),
    "\n".join(f"class A{i}(A{i + 1}): x = 1" for i in range(3500)),
    "\n".join("def f(): x.y = 1" for _ in range(5000)),
    "\n".join("k[lambda m: (f(m),)](x)" for _ in range(3500)),
    "def f():\n" + "\n".join(" x = g(); x.y = 1" for _ in range(5000)),
]


@pytest.mark.parametrize("index", range(len(BOMBS)))
@pytest.mark.parametrize("mode", ["strict", "coverage"])
def test_no_text_makes_it_raise(index, mode):
    found = check(BOMBS[index], mode)
    assert found
    assert all(type(item) is Violation and item.line >= 1 and item.reason for item in found)


@given(st.text(max_size=200))
def test_random_text_is_refused_quietly(text):
    assert check(text)


@given(st.lists(st.sampled_from(HONEST.splitlines()), max_size=40))
def test_shuffled_code_is_judged_quietly(lines):
    check("\n".join(lines), "strict")


def test_unknown_mode():
    with pytest.raises(ValueError, match="strict, coverage or off"):
        check("", "lenient")
