# SPDX-License-Identifier: Apache-2.0
"""Texts of any length, each a shape that makes some reader of programs slow, and texts made to break one."""

from collections.abc import Callable

from tests.env.programs import HONEST
from tests.env.static_check.gate_programs import ENTRY, HEADER


def _lines(line: str) -> Callable[[int], str]:
    return lambda size: "".join(line.replace("#", str(number)) + "\n" for number in range(size))


def _in_function(line: str, before: str = "") -> Callable[[int], str]:
    return lambda size: f"{before}def f(x):\n" + "".join(f" {line}\n".replace("#", str(n)) for n in range(size))


def _wide(opening: str, item: str, closing: str) -> Callable[[int], str]:
    return lambda size: opening + ", ".join(item.replace("#", str(n)) for n in range(size)) + closing + "\n"


SHAPES: dict[str, Callable[[int], str]] = {
    "kernels": _lines("@triton.jit\ndef k#(x, B: tl.constexpr): tl.store(x + B, tl.load(x) * 2.0)"),
    "kernels of one name": _lines("@triton.jit\ndef k(x): k(x)"),
    "functions": _lines("def g#(x): return g#(x) + helper(x)"),
    "functions of one name": _lines("def g(x): return g(x)"),
    "launches with one dictionary": lambda size: (
        "H = {" + ", ".join(f"'a{n}': lambda a: g(a)" for n in range(size)) + "}\ndef g(a): return 1\ndef f(x):\n"
        + " kern[H['a1']](x)\n" * size
    ),
    "heuristics with one dictionary": lambda size: (
        "H = {" + ", ".join(f"'a{n}': lambda a: 1" for n in range(size)) + "}\n"
        + _lines("@triton.heuristics(H)\n@triton.jit\ndef k#(x): tl.store(x, 1)")(size)
    ),
    "launches with lambdas": _in_function("kern[lambda m: (g(m), h.size(0))](x)", "def g(m): return g(m)\n"),
    "launches with one grid": _in_function("kern[grid](x)", "def grid(m):\n" + " a = max(1, 2)\n" * 20 + " return 1\n"),
    "grids bound again and again": lambda size: "def f(x):\n" + " g = lambda m: (1,)\n" * size + " kern[g](x)\n" * size,
    "callables that call each other": _lines("def g#(m): return g1(m) + g2(m) + g#(m)\nrun# = kern[g#]"),
    "aliases in a row": _lines("a# = torch.nn\nb# = a#"),
    "aliases of aliases": lambda size: "a0 = tl\n" + "".join(f"a{n + 1} = a{n}\n" for n in range(size)),
    "aliases of aliases backwards": lambda size: "".join(f"a{n} = a{n + 1}\n" for n in range(size)) + f"a{size} = tl\n",
    "aliases that grow": lambda size: "a = torch\n" + "a = a.nn\n" * size,
    "classes": _lines("class A#(nn.Module):\n    def forward(self, x): return x"),
    "classes of one name": _lines("class A(A): x = 1"),
    "classes in a row": _lines("class A#(B#): x = 1\nclass B#(A#): y = 2"),
    "classes that inherit in turn": lambda size: (
        "class A0(nn.Module): a = 1\n" + "".join(f"class A{n + 1}(A{n}): a = 1\n" for n in range(size))
    ),
    "branches": lambda size: ("if helper:\n pass\n" + "elif helper:\n pass\n" * 100 + "def g(): pass\n") * (size // 50),
    "attribute chains": lambda size: ("helper" + ".b" * 300 + "\n") * (size // 20),
    "subscript chains": lambda size: ("helper" + "[0]" * 150 + "\n") * (size // 20),
    "nested subscripts": lambda size: ("helper[" * 150 + "0" + "]" * 150 + "\n") * (size // 20),
    "calls in calls": lambda size: ("x = " + "helper(" * 150 + "0" + ")" * 150 + "\n") * (size // 20),
    "nested lambdas": lambda size: ("x = " + "lambda: (" * 90 + "helper" + ")" * 90 + "\n") * (size // 20),
    "nested comprehensions": lambda size: (
        ("x = " + "[" * 40 + "helper" + "".join(f" for a{n} in x]" for n in range(40)) + "\n") * (size // 20)
    ),
    "nested functions": lambda size: (
        "".join("    " * depth + f"def f{depth}(x):\n" for depth in range(30))
        + ("    " * 30 + "kern[lambda m: (f1(m),)](x)\n") * size
    ),
    "open brackets": lambda size: "x = " + "(" * 150 + "helper, " * size + ")" * 150 + "\n",
    "strings": _lines("x# = 'a' + \"b\" + '''c'''"),
    "formatted strings": _lines("x# = f'{helper} and {helper!r:>{3}} ' f'{helper.a[0]}'"),
    "a wide tuple": _wide("x = (", "helper.a#", ",)"),
    "a wide dictionary": _wide("x = {", "'k#': helper", "}"),
    "a wide signature": lambda size: (
        "def f(" + ", ".join(f"a{n}=[]" for n in range(size)) + "):\n" + " a0.append(1); a1.b = 2\n" * size
    ),
    "a wide call": _wide("helper(", "a#=1", ")"),
    "attributes of made objects": _in_function("x = torch.empty(1); x.grad = 1"),
    "caches": _lines("@functools.cache\ndef g#(n): return helper(n) + g#(n)"),
    "caches of one function": lambda size: "@functools.cache\n" * size + "def g(n):\n" + " n = n + h(n)\n" * size,
    "imports": _lines("import torch.nn as n#, math as m#"),
    "imports of much from one": _lines("from torch import nn as n#, empty as e#"),
    "long names": lambda size: f"import math as {'m' * 190}\n" + f"{'m' * 190}.sqrt(1)\n" * (size // 20),
    "names in a class": lambda size: f"class {'N' * 190}(nn.Module):\n" + "    half = 1\n" * size,
    "addresses": _in_function("x.data_ptr() == x.data_ptr() % 16"),
    "a long comparison": lambda size: "x = helper" + " == x.data_ptr()" * 190 + "\n" + "x = 1\n" * size,
    "numbers": _in_function("n = np.sqrt(n) + np.prod(x.shape) + int(x.size(0))"),
    "numbers of numbers": lambda size: (
        "def f(x):\n a0 = 1\n" + "".join(f" a{n + 1} = a{n} + n\n" for n in range(size))
        + f" for n in x.shape: np.sqrt(a{min(size, 40)})\n"
    ),
    "numbers of objects": _in_function("self.n = np.sqrt(self.n) + np.sqrt(self.m); self.m = self.n"),
    "annotated": _lines("def g#(x: torch.Tensor, n: Optional[int] = None) -> Tuple[int, int]: return n"),
    "escaped quotes": lambda size: "x = " + "'" + "\\'" * size + "\n",
    "a long docstring": lambda size: "def f():\n    '''\n" + "    def g(x): eval(\n" * size + "    '''\n",
    "deletions": _in_function("y = x; del y"),
    "matches": _in_function("match x:\n  case {'a': a, **rest}: pass\n  case [b, *c]: pass"),
    "unbound names": _lines("missing#"),
}  # fmt: skip


def text(name: str, size: int) -> str:
    return HEADER + SHAPES[name](size) + ENTRY


def indented(levels: int) -> str:
    return "".join(f"{' ' * level}if 1:\n" for level in range(levels)) + " " * levels + "pass\n"


HOSTILE = {
    "nothing": "", "no class": "x = 1\n", "return": "return 1", "nonlocal": "nonlocal x", "backslash": "\\",
    "open quotes": "'''", "open signature": "def f(:", "open parentheses": "(" * 50_000,
    "null": "\0", "surrogate": "\ud800", "mark of byte order": "\ufeffimport os", "form feeds": "\f" * 1000 + "class",
    "null after a program": HONEST + "\0", "null in a string": HONEST + "'\0'\n",
    "surrogate in a string": HONEST + "'\ud800'\n", "mark of byte order in the middle": HONEST + "\ufeff",
    "utf-7": "# -*- coding: utf-7 -*-\n" + HONEST, "rot13": "# -*- coding: rot13 -*-\nimport os",
    "no such codec": "# coding: no-such-codec\n" + HONEST, "carriage returns": HONEST.replace("\n", "\r"),
    "parentheses": "(" * 50_000 + ")" * 50_000, "signs": "x = " + "-" * 90_000 + "1", "sums": "1" + "+1" * 50_000,
    "attributes": "x = a" + ".b" * 40_000, "lambdas": "lambda: " * 12_000 + "0", "negations": "not " * 25_000 + "1",
    "calls": "f(" * 30_000 + ")" * 30_000, "calls of calls": "a" + "()" * 49_000, "indentation": indented(150),
    "branches": "if a:\n p\n" + "elif a:\n p\n" * 9000, "a long name": "x" * 100_000,
    "f-strings": "x = " + "f'{" * 60 + "1" + "}'" * 60, "signs in an f-string": "f'{" + "-" * 90_000 + "1}'",
    "huge integer": HONEST + "N = " + "9" * 90_000 + "\n", "huge power": HONEST + "N = 9 ** 9 ** 9\n",
    "huge string": HONEST + "N = 'a' * (1 << 40)\n", "too long": HONEST + "#" * 200_000,
    "escaped quotes": "x = '" + "\\'" * 40_000, "builtins": "open\n" * 10_000, "reads": "getattr(x, 'y')\n" * 5000,
    **{
        f"{size} {name}": text(name, size) for name, size in (
            ("kernels of one name", 1500), ("aliases that grow", 8000), ("aliases of aliases backwards", 3000),
            ("classes of one name", 4000), ("classes in a row", 1500), ("launches with lambdas", 2000),
            ("launches with one dictionary", 1500), ("caches", 1500), ("attributes of made objects", 3000),
        )
    },
}  # fmt: skip
"""Texts made to break whoever reads them."""
