# SPDX-License-Identifier: Apache-2.0
"""A task: the reference program against which candidates are judged."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from verl_kernel.env.sizes import AT_SIZE, Workload, read_workloads, size_name
from verl_kernel.errors import TaskError


@dataclass(frozen=True)
class Task:
    """A reference program in KernelBench form: `class Model`, `get_inputs()`, `get_init_inputs()`.

    With a list `WORKLOADS` it has several sizes, and `get_inputs` takes what the list holds.

    Raises:
        TaskError: the source does not parse or lacks one of the three names, or its sizes cannot be read.
    """

    reference: str
    """Source text of the reference program."""
    task_id: str = ""
    """Name used in results; if left empty, the first 12 characters of the fingerprint."""
    entry_point: str = "Model"
    """Class of the reference; a candidate defines `<entry_point>New`."""
    namespace: str = field(default="", kw_only=True)
    """Whose task it is, in a service for several; what is remembered of a task is remembered for its namespace."""
    size_of: str = field(default="", kw_only=True, repr=False, compare=False)
    """Fingerprint of the task that this one is a size of: all sizes of a task have the same weights."""
    fingerprint: str = field(init=False, repr=False)
    """SHA-256 of the reference and its entry point; input values depend on it."""
    workloads: tuple[Workload, ...] = field(init=False, repr=False, compare=False)
    """What the sizes of the task are drawn with (`sizes`); empty for a task of one size."""

    def __post_init__(self) -> None:
        module = self._parsed()
        missing = self._missing_names(module)
        if missing:
            raise TaskError(
                f"reference {self.task_id or '<unnamed>'} defines no {' and no '.join(missing)}: a reference program "
                f"needs `class {self.entry_point}(nn.Module)`, `get_inputs()` and `get_init_inputs()` at module level"
            )
        digest = hashlib.sha256(f"{self.entry_point}\0{self.reference}".encode()).hexdigest()
        object.__setattr__(self, "fingerprint", digest)
        object.__setattr__(self, "workloads", read_workloads(module, self.task_id))
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
        return _text_hash(self.reference)

    def at_size(self, workload: Workload) -> Task:
        """Return the task at one of its sizes, whose `get_inputs` takes nothing."""
        call = f"**{workload!r}" if isinstance(workload, dict) else repr(workload)
        drawn = f"{AT_SIZE} = get_inputs\n\n\ndef get_inputs():\n    return {AT_SIZE}({call})\n"
        name = f"{self.task_id}[{size_name(workload)}]"
        return replace(self, reference=f"{self.reference}\n\n{drawn}", task_id=name, size_of=self.fingerprint)

    def _parsed(self) -> ast.Module:
        if not isinstance(self.reference, str) or not self.reference.strip():
            raise TaskError(f"reference {self.task_id or '<unnamed>'} is empty: give the source text of the program")
        try:
            return ast.parse(self.reference)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
            raise TaskError(f"reference {self.task_id or '<unnamed>'} is not valid Python: {exc}") from exc

    def _missing_names(self, module: ast.Module) -> list[str]:
        classes = {node.name for node in module.body if isinstance(node, ast.ClassDef)}
        functions = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
        missing = [] if self.entry_point in classes else [f"`class {self.entry_point}`"]
        return missing + [f"`{name}()`" for name in ("get_inputs", "get_init_inputs") if name not in functions]


@lru_cache(maxsize=256)  # each evaluation makes its task's sizes anew
def _text_hash(source: str) -> str:
    return hashlib.sha256(_essence(source).encode()).hexdigest()


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
