# SPDX-License-Identifier: Apache-2.0
"""How names, signatures and sources of verl are looked up.

A pin that fails after an upgrade of verl says what moved, before a training run finds out. One test a pin.
"""

import ast
import functools
import inspect
import pkgutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VERL = Path(find_spec("verl").submodule_search_locations[0])
"""Its folder, without an import that takes seconds."""


def found(name: str) -> Any:
    """What stands at `module:name`; of an actor of Ray the class behind it."""
    module, _, path = name.partition(":")
    thing = pkgutil.resolve_name(module)
    for part in path.split("."):
        thing = getattr(thing, part)
        thing = getattr(getattr(thing, "__ray_metadata__", None), "modified_class", thing)
    return thing


def parameters(function: Callable[..., Any]) -> list[str]:
    # Ray adds one of its own to the methods of an actor.
    return [name for name in inspect.signature(inspect.unwrap(function)).parameters if name != "_ray_trace_ctx"]


def source_of(path: str, *names: str) -> ast.AST:
    """The definition `names` (outermost first) of a verl file, read without importing it."""
    node: ast.AST = _tree(path)
    for name in names:
        node = next(child for child in ast.walk(node) if getattr(child, "name", None) == name)
    return node


@functools.cache
def text_of(place: str) -> str:
    """A verl file, or a definition `file:Outer.inner` in it, as `ast.unparse` writes it, with single quotes."""
    path, _, names = place.partition(":")
    return ast.unparse(source_of(path, *filter(None, names.split("."))))


@functools.cache
def _tree(path: str) -> ast.AST:
    return ast.parse((VERL / path).read_text())
