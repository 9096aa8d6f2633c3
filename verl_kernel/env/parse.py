# SPDX-License-Identifier: Apache-2.0
"""The parser of untrusted Python text, which no text can crash.

CPython's parser recurses, and its limits differ between versions. Therefore tokens are counted first: text that nests
deeper than any kernel needs is refused before it is parsed.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
import warnings

MAX_DEPTH = 400
"""Largest number of operators, keywords and brackets that are open at once in an expression."""
MAX_INDENT = 40
"""Largest number of indentation levels."""
MAX_BRANCHES = 150
"""Largest number of `elif` branches in a row: each adds a level to the tree."""
MAX_NAME = 200
"""Largest number of characters in a name: the gate's dotted paths repeat names."""

_NESTING_KEYWORDS = frozenset("and or not in is if else lambda await for from".split())
_NESTING_CHARS = re.compile(r"[-+~*/%@.<>=!&|^(\[{]|\b(?:not|lambda|if|and|or|in|is|await)\b")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_FLAT = frozenset((",", ";", ":"))
_UNFINISHED = ("'", '"', "\\")


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a text, without the body of `if __name__ == "__main__":`, which never runs.

    Raises:
        SyntaxError: the text is not Python, or beyond the limits above.
        ValueError: the text has null bytes, lone surrogates or numbers of too many digits.
    """
    _check_encoding(source)
    _check_depth(source.replace("\r\n", "\n").replace("\r", "\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # else Python would print warnings about the candidate's escape sequences
        tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.If) and _asks_for_main(node.test):
            node.body = [_in_place_of(node.body)]
    return tree


@functools.lru_cache(maxsize=2)
def parse_once(source: str) -> ast.Module:
    """Do the same as `parse`, and remember the latest two trees; callers must not change a tree."""
    return parse(source)


def _asks_for_main(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, test.comparators[0])
    names = [side for side in sides if isinstance(side, ast.Name) and side.id == "__name__"]
    return len(names) == 1 and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


def _in_place_of(body: list[ast.stmt]) -> ast.Pass:
    """Return a `pass` with the position of the statements it replaces, by which their text can be removed too."""
    first, last = body[0], body[-1]
    line = min([first.lineno, *(item.lineno for item in getattr(first, "decorator_list", []))])
    return ast.Pass(
        lineno=line, col_offset=first.col_offset, end_lineno=last.end_lineno, end_col_offset=last.end_col_offset
    )


def _check_encoding(source: str) -> None:
    """Refuse a declared encoding other than UTF-8.

    The process that imports the text obeys the declaration and `ast.parse` does not, so they would read different text.
    """
    lines = io.BytesIO(source[:2000].encode())
    try:
        encoding, _ = tokenize.detect_encoding(lines.readline)
    except LookupError as exc:  # Python 3.14, of rot13 and the like
        raise SyntaxError(f"the declared encoding decodes no text: declare none, or utf-8 ({exc})") from None
    if encoding not in ("utf-8", "utf-8-sig"):
        raise SyntaxError(f"the encoding {encoding} is declared: declare none, or utf-8")


def _check_depth(source: str) -> None:
    open_counts, total, indent, branches = [0], 0, 0, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            indent += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
            branches = _branches(token, branches)
            total = _count(token, open_counts, total)
            if total + len(open_counts) > MAX_DEPTH or indent > MAX_INDENT or branches > MAX_BRANCHES:
                raise _too_deep(token.start[0])
            if len(token.string) > MAX_NAME and token.type == tokenize.NAME:
                raise _refused(token.start[0], "a name is too long to read: write shorter names")
            # For each of these tokens the tokenizer scans the rest of the line again.
            if token.type == tokenize.ERRORTOKEN and token.string[:1] in _UNFINISHED:
                raise _refused(token.start[0], "a string or a line is not finished")
    except tokenize.TokenError as exc:
        error = SyntaxError(str(exc.args[0]))
        error.lineno = max(1, exc.args[1][0])
        raise error from None


def _branches(token: tokenize.TokenInfo, so_far: int) -> int:
    """Return the number of `elif` keywords since the latest `def` or `class`, which ends a chain of branches."""
    if token.type != tokenize.NAME:
        return so_far
    return so_far + 1 if token.string == "elif" else 0 if token.string in ("def", "class") else so_far


def _count(token: tokenize.TokenInfo, open_counts: list[int], total: int) -> int:
    """Add a token to `open_counts`, the numbers of open items by bracket level; return their new sum."""
    text, before = token.string, open_counts[-1]
    if token.type == tokenize.NEWLINE:
        open_counts[:] = [0]
        return 0
    if token.type == tokenize.STRING:
        prefix = text[: len(text) - len(text.lstrip("rRbBuUfF"))]
        if "f" in prefix.lower() and len(_NESTING_CHARS.findall(text)) > MAX_DEPTH:
            raise _too_deep(token.start[0])
    elif token.type == tokenize.NAME and text in _NESTING_KEYWORDS:
        open_counts[-1] += 1
    elif token.type == tokenize.OP:
        if text in _CLOSING:
            return total - (open_counts.pop() if len(open_counts) > 1 else 0)
        _count_operator(text, open_counts)
        return total + (1 if text in _OPENING else open_counts[-1] - before)
    return total + open_counts[-1] - before


def _count_operator(text: str, open_counts: list[int]) -> None:
    if text in _OPENING:
        open_counts[-1] += 1
        open_counts.append(0)
    elif text in _FLAT:
        open_counts[-1] = open_counts[-1] if text == ":" else 0
    else:
        open_counts[-1] += 1


def _too_deep(line: int) -> SyntaxError:
    return _refused(line, "nested or chained too deeply to read: write simpler statements")


def _refused(line: int, reason: str) -> SyntaxError:
    error = SyntaxError(reason)
    error.lineno = line
    return error
