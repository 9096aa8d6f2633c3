# SPDX-License-Identifier: Apache-2.0
"""The places in the evaluator's code where a check says what it has found, read off the syntax trees.

A check is one statement: it raises a verdict, yields a violation or a change, returns a difference, notes a flag. So a
new check is a new place, whether or not anybody thinks of a test.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import verl_kernel.env

ENV = Path(verl_kernel.env.__file__).parent
Functions = ast.FunctionDef | ast.AsyncFunctionDef
_OURS = frozenset(
    "InfraError EnvironmentNotReady ConfigError TaskError NotCompiled not_compiled".split()
    + "ExecutionDied failure _failed refusal known".split()
)
"""What says that the evaluator or the task is to blame, and not the candidate."""
_DIFFERENCES = frozenset(("str | None", "Unlike | None", "tuple[str, str] | None", "tuple[HackFlag, str] | None"))
"""What a function returns that says what is wrong, or None."""


@dataclass(frozen=True)
class Site:
    """One check: where its finding stands."""

    file: str
    """Below `verl_kernel/env`."""
    function: str
    """Its qualified name."""
    number: int
    """Among the findings of the function; 0 for the first."""
    line: int
    last_line: int

    @property
    def module(self) -> str:
        """Dotted, below `verl_kernel.env`."""
        return ".".join(Path(self.file).with_suffix("").parts).removesuffix(".__init__")

    @property
    def name(self) -> str:
        """As the tables name it."""
        more = f" {self.number + 1}" if self.number else ""
        return f"{self.module}:{self.function}{more}"


def _called(node: ast.AST) -> set[str]:
    """Names of the functions and methods that are called in a statement."""
    calls = [item.func for item in ast.walk(node) if isinstance(item, ast.Call)]
    return {getattr(func, "id", getattr(func, "attr", "")) for func in calls}


def _violation(node: ast.stmt, function: Functions) -> bool:
    return bool(_called(node) & {"at", "Violation"})


def _verdict(node: ast.stmt, function: Functions) -> bool:
    """A statement that raises what ends an evaluation by the candidate's doing."""
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    if not isinstance(node.exc, ast.Call | ast.Subscript):
        return False
    made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc.value
    return getattr(made, "id", getattr(made, "attr", "")) not in _OURS


def _difference(node: ast.stmt, function: Functions) -> bool:
    """A statement that returns what differs, in a function that else returns None."""
    text = "" if function.returns is None else ast.unparse(function.returns)
    if text not in _DIFFERENCES:
        return False
    is_none = isinstance(node, ast.Return) and (node.value is None or getattr(node.value, "value", node) is None)
    passes_on = isinstance(node, ast.Return) and isinstance(node.value, ast.Name | ast.BoolOp)
    return isinstance(node, ast.Return) and not is_none and not passes_on


def _change(node: ast.stmt, function: Functions) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)


def _note(node: ast.stmt, function: Functions) -> bool:
    text = ast.unparse(node)
    return "WIRE.note" in text or ("note" in _called(node) and "HackFlag" in text)


def _defect(node: ast.stmt, function: Functions) -> bool:
    return bool(_called(node) & {"finding", "Finding"})


_KINDS: dict[str, Callable[[ast.stmt, Functions], bool]] = {
    "static_check/__init__.py": _violation,
    "static_check/rules": _violation,
    "judge": _verdict,
    "true_size/consistency.py": _difference,
    "ipc/tensor_facts.py": _difference,
    "compilation/amd.py": _difference,
    "compilation/nvidia.py": _difference,
    "compilation/target.py": _difference,
    "clocks/cuda/rounds.py": _difference,
    "tamper/hack_flags.py": _verdict,
    "tamper/snapshot.py": _change,
    "tamper/tripwire.py": _note,
    "devices": _note,
    "runner": _note,
    "execution": _verdict,
    "reference/defects": _defect,
}
"""By part of the evaluator, what a finding looks like there."""


@lru_cache(maxsize=1)
def sites() -> tuple[Site, ...]:
    """All of them."""
    return tuple(site for part, is_finding in _KINDS.items() for file in _files(part) for site in _in(file, is_finding))


def _files(part: str) -> list[Path]:
    path = ENV / part
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _in(file: Path, is_finding: Callable[[ast.stmt, Functions], bool]) -> Iterator[Site]:
    path = str(file.relative_to(ENV))
    for name, function in functions(ast.parse(file.read_text())):
        for number, node in enumerate(findings(function, is_finding)):
            yield Site(path, name, number, node.lineno, node.end_lineno or node.lineno)


def functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Functions]]:
    """Functions and methods, with their qualified names; what is defined within a function belongs to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Functions):
            yield above + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{above}{node.name}.")


def findings(function: Functions, is_finding: Callable[[ast.stmt, Functions], bool]) -> list[ast.stmt]:
    """The innermost statements of a function that say what is found, in order."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and _is_simple(node)]
    return sorted((node for node in statements if is_finding(node, function)), key=lambda node: node.lineno)


def _is_simple(node: ast.stmt) -> bool:
    return not hasattr(node, "body")


def rule_of(site: Site) -> Callable[[ast.stmt, Functions], bool]:
    """What a finding looks like where this one stands."""
    return next(rule for part, rule in _KINDS.items() if site.file.startswith(part))
