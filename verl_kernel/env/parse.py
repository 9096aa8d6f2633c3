# SPDX-License-Identifier: Apache-2.0
"""Reads untrusted text as Python without giving the parser a chance to fail hard.

CPython's parser recurses, and its limits differ between versions. So tokens are counted first: text that nests deeper
than any kernel does is refused before a tree is made of it.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
import warnings

MAX_DEPTH = 400
"""Operators, keywords and brackets that may be open at once in one expression."""
MAX_INDENT = 40
MAX_BRANCHES = 150
"""`elif` branches in a row: each is one level of the tree."""
MAX_NAME = 200
"""Characters of a name: dotted paths repeat them."""

_NESTING_KEYWORDS = frozenset("and or not in is if else lambda await for from".split())
_NESTING_CHARS = re.compile(r"[-+~*/%@.<>=!&|^(\[{]|\b(?:not|lambda|if|and|or|in|is|await)\b")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_FLAT = frozenset((",", ";", ":"))
_UNFINISHED = ("'", '"', "\\")


def parse(source: str) -> ast.Module:
    """The syntax tree of a text, without the body of `if __name__ == "__main__":`, which never runs.

    Raises:
        SyntaxError: not Python, or not a form of it that a reader could follow.
        ValueError: not even text (null bytes, lone surrogates, endless numbers).
    """
    _check_encoding(source)
    _check_depth(source.replace("\r\n", "\n").replace("\r", "\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate's odd escapes are not our output
        tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.If) and _asks_for_main(node.test):
            node.body = [_in_place_of(node.body)]
    return tree


@functools.lru_cache(maxsize=2)
def parse_once(source: str) -> ast.Module:
    """The same, for those that change nothing in it and ask for the same text one after the other."""
    return parse(source)


def _asks_for_main(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, test.comparators[0])
    names = [side for side in sides if isinstance(side, ast.Name) and side.id == "__name__"]
    return len(names) == 1 and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


def _in_place_of(body: list[ast.stmt]) -> ast.Pass:
    """A `pass` that covers the statements it stands for, so that the text can be read without them too."""
    first, last = body[0], body[-1]
    line = min([first.lineno, *(item.lineno for item in getattr(first, "decorator_list", []))])
    return ast.Pass(
        lineno=line, col_offset=first.col_offset, end_lineno=last.end_lineno, end_col_offset=last.end_col_offset
    )


def _check_encoding(source: str) -> None:
    """The importing process honours an encoding cookie, this parser does not: they must read the same text."""
    lines = io.BytesIO(source[:2000].encode())
    encoding, _ = tokenize.detect_encoding(lines.readline)
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
            if token.type == tokenize.ERRORTOKEN and token.string[:1] in _UNFINISHED:
                raise _refused(token.start[0], "a string or a line is not finished")  # each costs the rest of its line
    except tokenize.TokenError as exc:
        error = SyntaxError(str(exc.args[0]))
        error.lineno = max(1, exc.args[1][0])
        raise error from None


def _branches(token: tokenize.TokenInfo, so_far: int) -> int:
    """`elif` keywords since the last statement that could have ended their chain."""
    if token.type != tokenize.NAME:
        return so_far
    return so_far + 1 if token.string == "elif" else 0 if token.string in ("def", "class") else so_far


def _count(token: tokenize.TokenInfo, open_counts: list[int], total: int) -> int:
    """Add a token to what is open at each bracket's level; the sum over the levels."""
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
