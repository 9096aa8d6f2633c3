# SPDX-License-Identifier: Apache-2.0
"""A task: the reference program against which candidates are judged."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from verl_kernel.errors import TaskError


@dataclass(frozen=True)
class Task:
    """A reference program in KernelBench form: `class Model`, `get_inputs()`, `get_init_inputs()`.

    Raises:
        TaskError: the source does not parse or lacks one of the three names.
    """

    reference: str
    """Source text of the reference program."""
    task_id: str = ""
    """Name used in results; if left empty, the first 12 characters of the fingerprint."""
    entry_point: str = "Model"
    """Class of the reference; a candidate defines `<entry_point>New`."""
    namespace: str = field(default="", kw_only=True)
    """Whose task it is, in a service for several; what is remembered of a task is remembered for its namespace."""
    fingerprint: str = field(init=False, repr=False)
    """SHA-256 of the reference and its entry point; input values depend on it."""

    def __post_init__(self) -> None:
        missing = self._missing_names()
        if missing:
            raise TaskError(
                f"reference {self.task_id or '<unnamed>'} defines no {' and no '.join(missing)}: a reference program "
                f"needs `class {self.entry_point}(nn.Module)`, `get_inputs()` and `get_init_inputs()` at module level"
            )
        digest = hashlib.sha256(f"{self.entry_point}\0{self.reference}".encode()).hexdigest()
        object.__setattr__(self, "fingerprint", digest)
        if not self.task_id:
            object.__setattr__(self, "task_id", digest[:12])

    @cached_property
    def cache_key(self) -> str:
        """The key of every cache: the fingerprint, with the namespace if there is one."""
        if not self.namespace:
            return self.fingerprint
        return hashlib.sha256(f"{self.namespace}\0{self.fingerprint}".encode()).hexdigest()

    @property
    def candidate_class(self) -> str:
        """Name of the class that a candidate must define."""
        return f"{self.entry_point}New"

    @cached_property
    def text_hash(self) -> str:
        """SHA-256 of the reference's text without comments and white space; identifies a published task's version."""
        return hashlib.sha256(_essence(self.reference).encode()).hexdigest()

    def _missing_names(self) -> list[str]:
        if not isinstance(self.reference, str) or not self.reference.strip():
            raise TaskError(f"reference {self.task_id or '<unnamed>'} is empty: give the source text of the program")
        try:
            tree = ast.parse(self.reference)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
            raise TaskError(f"reference {self.task_id or '<unnamed>'} is not valid Python: {exc}") from exc
        classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        missing = [] if self.entry_point in classes else [f"`class {self.entry_point}`"]
        return missing + [f"`{name}()`" for name in ("get_inputs", "get_init_inputs") if name not in functions]


def _essence(source: str) -> str:
    """Return the text without white space and comments; if the tokenizer refuses it, later comments stay."""
    lines = list(io.StringIO(source))
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    return "".join("".join(lines).split())


def not_compiled(task: Task, reason: str) -> TaskError:
    """Return the error for a reference that `torch.compile` does not compile; `reason` says why."""
    return TaskError(
        f"reference {task.task_id} cannot be timed through torch.compile: {reason}; set kernelgym.reference_mode to "
        "best or eager, or leave the task out"
    )


def slow_reference(task: Task, limit_s: float) -> TaskError:
    """Return the error for a reference that exceeds its time limit of `limit_s` seconds."""
    return TaskError(
        f"reference {task.task_id} cannot serve as a task: it takes longer than "
        f"kernelgym.reference_timeout_s = {limit_s:g} s; make it smaller or raise the limit"
    )
