# SPDX-License-Identifier: Apache-2.0
"""The statements in the evaluator's code by which a check objects to something.

A check is one statement: it raises a verdict, yields a change, returns a difference, notes a flag. A comment beside it,
`# check: name`, gives it the name that the tables of this folder use, wherever the code moves. What such a statement
looks like is read off the syntax trees too, so that one without a name is noticed. The gate's checks need no names:
`test_checks.py` tries all of its rules.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import verl_kernel.env

ENV = Path(verl_kernel.env.__file__).parent
Functions = ast.FunctionDef | ast.AsyncFunctionDef
_NAME = re.compile(r"(^\s*)?# check: ([\w-]+)")
_OURS = frozenset(
    "InfraError EnvironmentNotReady ConfigError TaskError NotCompiled not_compiled".split()
    + "ExecutionDied failure _failed refusal decision".split()
)
"""What says that the evaluator or the task is to blame, and not the candidate."""
_DIFFERENCES = frozenset(("str | None", "SizeMismatch | None", "tuple[str, str] | None", "tuple[HackFlag, str] | None"))
"""What a function returns that says what is wrong, or None."""


@dataclass(frozen=True)
class Site:
    """The statement of a check."""

    name: str
    """As the tables name it; empty where it has no name."""
    file: Path
    line: int
    last_line: int
    function: str
    """The qualified name of the function that holds it."""

    @property
    def module(self) -> str:
        """Its dotted name."""
        below = self.file.relative_to(ENV.parents[1]).with_suffix("")
        return ".".join(below.parts).removesuffix(".__init__")


def _called(node: ast.AST) -> set[str]:
    """Names of the functions and methods that are called in a statement."""
    calls = [item.func for item in ast.walk(node) if isinstance(item, ast.Call)]
    return {getattr(func, "id", getattr(func, "attr", "")) for func in calls}


def _verdict(node: ast.stmt, function: Functions) -> bool:
    """A statement that raises what ends an evaluation by the candidate's doing."""
    if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call | ast.Subscript):
        return False
    made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc.value
    return getattr(made, "id", getattr(made, "attr", "")) not in _OURS


def _difference(node: ast.stmt, function: Functions) -> bool:
    """A statement that returns what differs, in a function that else returns None."""
    text = "" if function.returns is None else ast.unparse(function.returns)
    if text not in _DIFFERENCES or not isinstance(node, ast.Return):
        return False
    is_none = node.value is None or getattr(node.value, "value", node) is None
    passes_on = isinstance(node.value, ast.Name | ast.BoolOp)
    return not is_none and not passes_on


def _note(node: ast.stmt, function: Functions) -> bool:
    text = ast.unparse(node)
    return "WIRE.note" in text or ("note" in _called(node) and "HackFlag" in text)


_GATE = ("static_check/__init__.py", "static_check/rules")
_KINDS: dict[str, Callable[[ast.stmt, Functions], bool]] = {
    "judge": _verdict, "true_size/consistency.py": _difference, "ipc/tensor_facts.py": _difference,
    "compilation/amd.py": _difference, "compilation/nvidia.py": _difference, "compilation/target.py": _difference,
    "clocks/cuda/rounds.py": _difference, "tamper/hack_flags.py": _verdict,
    "tamper/snapshot.py": lambda node, _: isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield),
    "tamper/tripwire.py": _note, "devices": _note, "runner": _note, "execution": _verdict,
    "reference/defects": lambda node, _: bool(_called(node) & {"finding", "Finding"}),
}  # fmt: skip
"""By part of the evaluator, what the statement of a check looks like there."""


@lru_cache(maxsize=1)
def named_sites() -> dict[str, Site]:
    """Return all statements with a name, by their names."""
    marked = [file for file in sorted(ENV.rglob("*.py")) if "# check: " in file.read_text()]
    sites = [site for file in marked for site in _statements(file) if site.name]
    named = {site.name: site for site in sites}
    assert len(named) == len(sites), "two checks have one name"
    return named


def unnamed_sites() -> list[Site]:
    """Return the statements that look like a check's and have no name."""
    files = ((file, looks_like) for part, looks_like in _KINDS.items() for file in _files(part))
    return [site for file, looks_like in files for site in _statements(file, looks_like) if not site.name]


def gate_sites() -> list[Site]:
    """Return the statements by which the gate refuses a text."""

    def refuses(node: ast.stmt, function: Functions) -> bool:
        return bool(_called(node) & {"at", "Violation"})

    return [site for part in _GATE for file in _files(part) for site in _statements(file, refuses)]


def _files(part: str) -> list[Path]:
    path = ENV / part
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _statements(
    file: Path, looks_like: Callable[[ast.stmt, Functions], bool] = lambda node, function: True
) -> Iterator[Site]:
    text = file.read_text()
    names = _names(text)
    for qualified, function in functions(ast.parse(text)):
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and not hasattr(node, "body") and looks_like(node, function):
                yield Site(names.get(node.lineno, ""), file, node.lineno, node.end_lineno or node.lineno, qualified)


def _names(text: str) -> dict[int, str]:
    """Return the names of checks by the line of their statement: a name stands behind it, or in the line above."""
    found = [(number, _NAME.search(line)) for number, line in enumerate(text.splitlines(), 1) if "# check: " in line]
    return {number + (match[1] is not None): match[2] for number, match in found if match}


def functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Functions]]:
    """Functions and methods, with their qualified names; what is defined within a function belongs to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Functions):
            yield above + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{above}{node.name}.")
