# SPDX-License-Identifier: Apache-2.0
"""Finds the fenced blocks of a text.

They follow CommonMark (https://spec.commonmark.org/0.31.2/#fenced-code-blocks), extended to the way models write: words
may follow a closing fence, and a fence that names a language ends a block that was left open.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Block:
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


def fenced_blocks(text: str) -> list[Block]:
    """Return the closed blocks of a text in order, each without the indent that all of its lines share."""
    lines = text.split("\n")
    fences = [fence for number, line in enumerate(lines) if (fence := _fence(number, line))]
    blocks: list[Block] = []
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
            blocks.append(Block(opening.label, _body(lines[opening.line + 1 : fences[end].line])))
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
    found = _FENCE.fullmatch(line)
    if found is None or "```" in found["info"]:
        return None
    info, mark = found["info"], found["mark"]
    words, touches = info.split(), not info[:1].isspace()
    found_name = _NAME.match(words[0]) if words else None
    name = found_name["name"].lower() if found_name else ""
    known, alone = name in _LANGUAGES, len(words) == 1
    return _Fence(
        line=number,
        indent=len(found["lead"].expandtabs(4)),
        mark=mark,
        label=name if known or (alone and touches) else "",
        opens=mark[0] == "~" or "`" not in info,
        names_language=known and (alone or (touches and name in PYTHON)),
    )


def _body(lines: list[str]) -> str:
    body = "".join(f"{line}\n" for line in lines)
    first = next((line for line in lines if line.strip()), "")
    # No module starts with an indented line, so such a block stands in a list.
    return textwrap.dedent(body) if first[:1].isspace() else body
