# SPDX-License-Identifier: Apache-2.0
"""Names are bound where the compiler binds them: in random texts full of scopes, and in programs."""

import ast
import dis
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.exploits.corpus import load
from tests.tiers import thinned
from verl_kernel.env.parse import parse
from verl_kernel.env.static_check.scopes import COMPREHENSIONS, FUNCTIONS, Scope, Scopes

INLINES = sys.version_info >= (3, 12)
"""Python 3.12.1 makes some names of inlined comprehensions local by mistake, which fails when it runs."""
HAS_POSITIONS = sys.version_info >= (3, 11)
GLOBAL = {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"}
FOUND = {"LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_NAMES = ["a", "b", "c", "getattr", "type", "super", "__d"]


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def places(code: types.CodeType) -> dict[str, set[str]]:
    """Where a code object keeps each of its names: `local`, `free` or `named` (global, or found when it runs)."""
    found: dict[str, set[str]] = defaultdict(set)
    for kind, names in (("local", (*code.co_varnames, *code.co_cellvars)), ("free", code.co_freevars)):
        for name in names:
            found[name].add(kind)
    for name in code.co_names:
        found[name].add("named")
    return found


def by_place(tree: ast.Module) -> dict[tuple[str, int], list[types.CodeType]]:
    """The code objects of a tree by name and first line."""
    found = defaultdict(list)
    for code in codes(compile(tree, "text", "exec", dont_inherit=True)):
        found[code.co_name, code.co_firstlineno].append(code)
    return found


def opcodes(tree: ast.Module) -> dict[tuple[object, ...], set[str]]:
    """The instructions that handle a name at a place of the text (Python 3.11 and later)."""
    found = defaultdict(set)
    for code in codes(compile(tree, "text", "exec", dont_inherit=True)):
        for instruction in dis.get_instructions(code):
            place = instruction.positions
            if place is not None and isinstance(instruction.argval, str):
                key = (place.lineno, place.end_lineno, place.col_offset, place.end_col_offset, instruction.argval)
                found[key].add(instruction.opname)
    return found


class Text:
    """A random text of nested functions, classes, lambdas and comprehensions over a few names."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._lines: list[str] = []

    def written(self) -> str:
        """The text; each scope with a line of its own."""
        for _ in range(self._random.randint(1, 5)):
            self._statement(0)
        return "\n".join(self._lines) + "\n"

    def _name(self) -> str:
        return self._random.choice(_NAMES)

    def _write(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _value(self, depth: int = 0) -> str:
        kind = self._random.randint(0, 9 if depth < 3 else 3)
        name, other = self._name(), self._name()
        if kind <= 3:
            return name
        if kind == 4:
            return f"(lambda {name}=\n{self._value(depth + 1)}, *{other}_:\n{self._value(depth + 1)})"
        if kind == 5:
            return f"(\n{self._value(depth + 1)}, f'{{{name}}}', {other})"
        pair = self._random.choice(["{%s}", "[%s]", "(%s)", "{%s: 1}"])
        first, last = pair.split("%s")
        test = self._random.choice([f"if {self._value(depth + 1)}", f"for {other} in {self._value(depth + 1)}", ""])
        return f"{first}\n{self._value(depth + 1)}{last[:-1]} for {name} in {self._value(depth + 1)} {test}{last[-1]}"

    def _statement(self, depth: int) -> None:
        kinds = [self._assign, self._use]
        if depth < 4:
            kinds += [self._for, self._if, self._def, self._class, self._def]
        self._random.choice(kinds)(depth)

    def _body(self, depth: int) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._statement(depth)

    def _assign(self, depth: int) -> None:
        form = self._random.choice(["{0} = {1}", "{0}: {2} = {1}", "({0} := {1})", "{0}, *{2} = {1}", "{0}: {2}"])
        self._write(depth, form.format(self._name(), self._value(), self._name()))

    def _use(self, depth: int) -> None:
        self._write(depth, self._value())

    def _for(self, depth: int) -> None:
        self._write(depth, f"for {self._name()} in {self._value()}:")
        self._body(depth + 1)

    def _if(self, depth: int) -> None:
        self._write(depth, f"if {self._value()}:")
        self._body(depth + 1)

    def _def(self, depth: int) -> None:
        if self._random.random() < 0.3:
            self._write(depth, f"@({self._value()})")
        name, argument = self._name(), self._name()
        self._write(depth, f"def {name}({argument}: {self._name()} = {self._value()}) -> {self._name()}:")
        if self._random.random() < 0.15:
            kept = self._random.choice([item for item in _NAMES if item != argument])
            self._write(depth + 1, f"global {kept}")
        self._body(depth + 1)

    def _class(self, depth: int) -> None:
        self._write(depth, f"class {self._name()}({self._value()}):")
        self._body(depth + 1)


def agrees(source: str) -> int:
    """Compare every name with the compiled code; how many were compared."""
    try:
        tree = parse(source)
        scopes = Scopes(source, tree)
        compile(tree, "text", "exec")
    except (SyntaxError, SystemError):  # Python 3.12.1 fails to compile some texts with `super`
        return 0
    names = [node for node in scopes.nodes if isinstance(node, ast.Name) and not _has_no_code(scopes, node)]
    compared, table, found = 0, by_place(tree), opcodes(tree) if HAS_POSITIONS else {}
    for node in names:
        compared += _in_code(scopes, node, table) if not INLINES else 1
        if HAS_POSITIONS:
            _in_instructions(scopes, node, found)
    return compared


def _has_no_code(scopes: Scopes, node: ast.Name) -> bool:
    parent = scopes.parents[id(node)]
    return id(node) in scopes.unevaluated or (isinstance(parent, ast.AnnAssign) and parent.value is None)


def _code_of(scope: Scope, table):
    node = scope.node
    if scope.parent is None:
        return table["<module>", 1] or table["<module>", 0]
    decorators = [item.lineno for item in getattr(node, "decorator_list", [])]
    plain = {ast.Lambda: "<lambda>", ast.ListComp: "<listcomp>", ast.SetComp: "<setcomp>", ast.DictComp: "<dictcomp>"}
    name = plain.get(type(node)) or getattr(node, "name", "<genexpr>")
    return table[name, min([node.lineno, *decorators])]


def _in_code(scopes: Scopes, node: ast.Name, table) -> int:
    here = scopes.of[id(node)]
    bound, name = scopes.key(node.id, node)
    candidates = _code_of(here, table)
    if len(candidates) != 1:
        return 0
    kinds = places(candidates[0])[name]
    if isinstance(bound.node, ast.Module | ast.ClassDef):
        expected = {"named"}
    else:
        expected = {"local"} if bound is here else {"free"}
    assert kinds & expected, (name, node.lineno, kinds, expected)
    return 1


def _in_instructions(scopes: Scopes, node: ast.Name, found) -> None:
    bound, name = scopes.key(node.id, node)
    names = found.get((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset, name), set())
    if names & GLOBAL:
        assert bound is scopes.module, (node.id, node.lineno, names)
    if names & FOUND:
        assert bound.is_class or bound is scopes.module, (node.id, node.lineno, names)
    local = any("FAST" in item or "DEREF" in item for item in names) and not names & (GLOBAL | FOUND)
    if local and not INLINES:
        assert isinstance(bound.node, (*FUNCTIONS, *COMPREHENSIONS)), (node.id, node.lineno, names)


@pytest.mark.slow
@pytest.mark.parametrize("part", thinned(range(4), 4))
@given(seed=st.integers(0, 1 << 40))
def test_generated_texts_agree_with_the_compiler(part, seed):
    agrees(Text(seed).written())


@pytest.mark.parametrize("case", thinned(load(), 12), ids=lambda case: case.name)
def test_programs_agree_with_the_compiler(case):
    assert agrees(case.source) >= 10 or case.name == "hidden_encoding"


BINDINGS = {
    "[getattr for getattr in x]\n    USED": "module",
    "global USED\n    return USED": "module",
    "return [(USED := y) for y in x], USED": "f",
    "match x:\n        case {**USED}: return USED": "f",
    "class A:\n        USED = 1\n        def g(self): return USED": "module",
    "return lambda USED: [USED for y in x]": "lambda",
    "def g():\n        def h(): return USED\n    USED = 1": "f",
    "del USED": "f",
    "return [USED for USED in x]": "comprehension",
}


@pytest.mark.parametrize(("body", "holder"), BINDINGS.items())
def test_names_are_bound_here(body, holder):
    source = f"def f(x):\n    {body.replace('USED', 'getattr')}\n"
    scopes = Scopes(source, parse(source))
    last = [node for node in scopes.nodes if isinstance(node, ast.Name) and node.id == "getattr"][-1]
    scope = scopes.key("getattr", last)[0]
    kind = "lambda" if isinstance(scope.node, ast.Lambda) else getattr(scope.node, "name", "module")
    assert holder == ("comprehension" if scope.targets is not None else kind)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="cannot be followed"):
        Scopes("f = lambda: 0\n", parse("f = 1\n"))
    with pytest.raises(ValueError, match="cannot be followed"):
        Scopes("f = 1\n", parse("f = lambda: 0\n"))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12's")
def test_type_parameters_are_refused():
    source = "def f[T](x: T): return x\n"
    with pytest.raises(ValueError, match="cannot be followed"):
        Scopes(source, parse(source))


@pytest.mark.skipif(sys.version_info < (3, 14), reason="before Python 3.14 annotations have no scope of their own")
@pytest.mark.parametrize("value", ["lambda: getattr", "[getattr for getattr in x]", "(y for y in x)", 't"{x}"'])
def test_a_scope_in_an_annotation_is_refused(value):
    source = f"def f(x: ({value})): return (lambda: 1)\n"
    with pytest.raises(ValueError, match="cannot be followed"):
        Scopes(source, parse(source))


ANNOTATED = {
    "x: USED": "module",
    "def g(y: USED): USED = 1": "module",
    "USED = 1\n    def g(y: USED): pass": "f",
    "class A:\n        USED = 1\n        def g(self, y: USED): pass": "A",
}


@pytest.mark.parametrize(("body", "holder"), ANNOTATED.items())
def test_a_name_of_an_annotation_is_bound_outside_it(body, holder):
    source = f"def f(x):\n    {body.replace('USED', 'getattr')}\n"
    scopes = Scopes(source, parse(source))
    (name,) = [node for node in scopes.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    assert getattr(scopes.key("getattr", name)[0].node, "name", "module") == holder
