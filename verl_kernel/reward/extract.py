# SPDX-License-Identifier: Apache-2.0
"""Extracts the candidate program from an answer: a fenced block outside of the thinking text.

Fenced blocks follow CommonMark (https://spec.commonmark.org/0.31.2/#fenced-code-blocks), extended to the way models
write: words may follow a closing fence, and a fence that names a language ends a block that was left open.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from verl_kernel.env import EvalError, EvalResult, EvalStatus, Task

PYTHON = frozenset({"python", "python2", "python3", "py", "py3", "ipython", "pytorch", "triton"})
"""Labels of Python blocks."""
_WRAPPERS = frozenset({"markdown", "md"})
"""Labels of blocks that hold whole answers."""
_OTHERS = frozenset(
    "bash sh shell console c c++ cpp cuda ptx mlir llvm json yaml toml diff text txt plaintext output log".split()
)
_LANGUAGES = PYTHON | _WRAPPERS | _OTHERS
_FENCE = re.compile(r"(?P<lead>[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?)(?P<mark>`{3,}|~{3,})(?P<info>.*)")
_NAME = re.compile(r"[{.]*(?P<name>[\w+#-]*)")
_DEEPER = 4
"""Number of columns from which on a fence is indented too far to end a block: it belongs to a docstring."""
_THINKING = re.compile(r"^[ \t]*<(think(?:ing)?)>.*?(?:</\1>|\Z)", re.DOTALL | re.MULTILINE)
_THOUGHT = re.compile(r"^[^#\n]*?</think(?:ing)?>", re.MULTILINE)
"""The end of a thought on its line, which is no comment."""
_HARMONY = re.compile(r"\s*(?:<\|channel\|>)?analysis")
_FINAL = re.compile(r"(?:<\|start\|>)?assistant(?:<\|channel\|>)?final(?:<\|message\|>)?")
"""Channels of gpt-oss (OpenAI's harmony format), whose marks a tokenizer may have left out."""
_INVISIBLE = re.compile("^[\ufeff\u200b\u200c\u200d\u2060]+(?=`{3}|~{3})", re.MULTILINE)


@dataclass(frozen=True)
class FencedBlock:
    """A closed block: its language in lower case, empty where it names none, and its text."""

    label: str
    body: str


@dataclass(frozen=True)
class _Fence:
    """A line that may open or close a block."""

    line: int
    indent: int
    mark: str
    label: str
    """Its language in lower case; empty where it names none."""
    opens: bool
    """Whether it may open a block; words after a closing fence may contain backticks, a language may not."""
    names_language: bool
    """Whether it must open a block; otherwise its words may also follow a closing fence."""

    def ends(self, opening: _Fence) -> bool:
        return self.mark.startswith(opening.mark)


def fenced_blocks(text: str) -> list[FencedBlock]:
    """Return the closed blocks of a text in order, each without the indent that all of its lines share."""
    lines = text.split("\n")
    fences = [fence for number, line in enumerate(lines) if (fence := _fence(number, line))]
    blocks: list[FencedBlock] = []
    at = 0
    while at < len(fences):
        opening = fences[at]
        end = _end(fences, at)
        if end is None or not opening.opens or opening.label in _WRAPPERS:
            at += 1
        elif fences[end].names_language:
            # A second fence with a language before the first block was closed: the first was a sketch.
            at = end
        else:
            blocks.append(FencedBlock(opening.label, _body(lines[opening.line + 1 : fences[end].line])))
            at = end + 1
    return blocks


def _end(fences: list[_Fence], at: int) -> int | None:
    """Return the index of the fence after `at` that ends its block: the first that is not too deep, else the first."""
    limit = fences[at].indent + _DEEPER
    later = (index for index in range(at + 1, len(fences)) if fences[index].ends(fences[at]))
    first = next(later, None)
    if first is None or fences[first].indent < limit:
        return first
    return next((index for index in later if fences[index].indent < limit), first)


def _fence(number: int, line: str) -> _Fence | None:
    match = _FENCE.fullmatch(line)
    if match is None or "```" in match["info"]:
        return None
    info, mark = match["info"], match["mark"]
    words, touches = info.split(), not info[:1].isspace()
    name_match = _NAME.match(words[0]) if words else None
    name = name_match["name"].lower() if name_match else ""
    is_language, alone = name in _LANGUAGES, len(words) == 1
    return _Fence(
        line=number,
        indent=len(match["lead"].expandtabs(4)),
        mark=mark,
        label=name if is_language or (alone and touches) else "",
        opens=mark[0] == "~" or "`" not in info,
        names_language=is_language and (alone or (touches and name in PYTHON)),
    )


def _body(lines: list[str]) -> str:
    body = "".join(f"{line}\n" for line in lines)
    first = next((line for line in lines if line.strip()), "")
    # No module starts with an indented line, so such a block stands in a list.
    return textwrap.dedent(body) if first[:1].isspace() else body


def extract_code(answer: str, candidate_class: str = "ModelNew") -> str | None:
    """Return the program of an answer.

    It is the last closed block that defines the candidate class, else the last one labelled as Python, else the last
    one without a label. Its lines end in a line feed, and the indent of the whole block is removed.

    Args:
        answer: the policy's text; text between `<think>` and `</think>` is not part of the answer.
        candidate_class: name of the class that the gym looks for.

    Returns:
        The program text, or `None` where the answer holds no such block (an unclosed one, cut off by
        the token budget, is not a program either).
    """
    blocks = [block for block in fenced_blocks(_without_thinking(answer)) if block.body.strip()]
    defines = re.compile(rf"^(?:class[ \t]+{(name := re.escape(candidate_class))}\b|{name}[ \t]*=)", re.MULTILINE)
    for candidates in (
        [block for block in blocks if defines.search(block.body)],
        [block for block in blocks if block.label in PYTHON],
        [block for block in blocks if not block.label],
    ):
        if candidates:
            return candidates[-1].body
    return None


def no_program(task: Task) -> EvalResult:
    """Return the verdict on an answer without a program; every loop rewards and reports it like any other."""
    error = EvalError(stage="extract", type="NoCode", message="the answer holds no closed ```python block")
    return EvalResult(
        task_id=task.task_id,
        task_hash=task.text_hash,
        status=EvalStatus.REJECTED_STATIC,
        compiled=False,
        correctness=False,
        error=error,
    )


def _without_thinking(answer: str) -> str:
    """Return the answer without its thinking; a chat template may have put the opening tag into the prompt."""
    text = _INVISIBLE.sub("", answer.replace("\r\n", "\n").replace("\r", "\n"))
    if _HARMONY.match(text) and _FINAL.search(text):
        text = _FINAL.split(text)[-1]
    closed = _THOUGHT.search(text)
    lone = closed is not None and not _THINKING.search(text[: closed.end()])
    return _THINKING.sub("", text[closed.end() :] if closed and lone else text)
