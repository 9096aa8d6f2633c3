# SPDX-License-Identifier: Apache-2.0
"""Says where the tree of an output (`shared_memory.flatten`) differs from the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NAMES = {"tensor": "a tensor", "list": "a list", "tuple": "a tuple", "dict": "a dictionary"}


def structural_difference(expected: Any, actual: Any, where: str = "the output") -> str:
    """Return a sentence about the first difference; empty where there is none.

    Args:
        expected: the reference's tree.
        actual: what a runner sent, which may be anything; of a long value the beginning is quoted.
        where: how the sentence calls what is compared.
    """
    (kind, body), (actual_kind, part) = _node(expected), _node(actual)
    if kind != actual_kind:
        return f"{where} is {_named(actual)}, and the reference's is {_named(expected)}"
    if kind == "value" and body != part:
        return f"{where} is {part!r:.60}, and the reference's is {body!r:.60}"
    if kind == "dict" and (odd := sorted(body.keys() ^ part.keys())):
        return f"{where} {'lacks' if odd[0] in body else 'has, unlike the reference,'} the key {odd[0]!r:.60}"
    if kind in ("list", "tuple") and len(body) != len(part):
        return f"{where} is a {kind} of {len(part)}, and the reference's of {len(body)}"
    parts = _parts(kind, body, part)
    differences = (structural_difference(inner, own, f"{where}[{key!r}]") for key, inner, own in parts)
    return next(filter(None, differences), "")


def _node(tree: Any) -> tuple[str, Any]:
    """Return a tree's kind and what it holds; the kind is empty where it is no tree."""
    if type(tree) is dict and len(tree) == 1:
        ((kind, body),) = tree.items()
        body_type = {"list": list, "tuple": list, "dict": dict, "tensor": int}.get(kind)
        if kind == "value" or (body_type and type(body) is body_type):
            return kind, body
    return "", None


def _named(tree: Any) -> str:
    kind, body = _node(tree)
    return _NAMES.get(kind) or (f"{body!r:.60}" if kind else "something else")


def _parts(kind: str, body: Any, part: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the keys of a container with what stands there in both."""
    if kind == "dict":
        yield from ((key, body[key], part[key]) for key in body)
    elif kind in ("list", "tuple"):
        yield from ((number, *pair) for number, pair in enumerate(zip(body, part, strict=True)))
