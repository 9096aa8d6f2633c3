# SPDX-License-Identifier: Apache-2.0
"""What the compiler's exception says, and at which line of which function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from triton.compiler.errors import CompilationError

from verl_kernel.env.compilation.outcome import Refusal

_REPR = re.compile(r"(\w+(?:Error|Exception|Failure))\((.*)\)", re.DOTALL)


def refusal(exc: BaseException, functions: Sequence[Any]) -> Refusal:
    """The innermost reason, and the innermost place that lies in one of the functions.

    Args:
        exc: what the compiler raised.
        functions: jit functions of the source; errors inside Triton's own functions are told at their call.
    """
    chain = list(_chain(exc))
    reason = chain[-1]
    kind, message = _unwrapped(type(reason).__name__, str(getattr(reason, "error_message", None) or reason))
    texts = {function.src: number for number, function in enumerate(functions)}
    places = [place for item in chain if (place := _place(item, texts)) is not None]
    function, offset = places[-1] if places else (0, 0)
    return Refusal(kind, " ".join(message.split()) or "no reason is given", function, offset)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """An exception and its causes, the innermost last."""
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _place(exc: BaseException, texts: dict[str, int]) -> tuple[int, int] | None:
    """Function and line within it, where the exception is about one of ours."""
    if not isinstance(exc, CompilationError) or exc.src not in texts or not hasattr(exc.node, "lineno"):
        return None
    return texts[exc.src], max(0, exc.node.lineno - 1)


def _unwrapped(kind: str, message: str) -> tuple[str, str]:
    """The exception that a message is the `repr` of: its class and what it says."""
    match = _REPR.fullmatch(message.strip())
    if match is None:
        return kind, message
    try:
        return match[1], str(ast.literal_eval(match[2])) if match[2] else ""
    except (SyntaxError, ValueError):  # more than one argument, or no literal
        return match[1], match[2]
