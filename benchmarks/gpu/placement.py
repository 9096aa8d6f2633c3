# SPDX-License-Identifier: Apache-2.0
"""Programs of the corpus for a GPU: what they allocate without naming a device, no compiled kernel could reach."""

from __future__ import annotations

import ast

FACTORIES = frozenset(("arange", "empty", "eye", "full", "ones", "tensor", "zeros"))
"""Not the random ones: their values are the host's, which a reference on the host draws too."""


def on_gpu(source: str) -> str:
    """The source with `device="cuda"` in the calls of torch's factories that name no device.

    A source that is not Python, or has no such call, is returned as it is.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    placed = _Placed()
    tree = placed.visit(tree)
    return ast.unparse(tree) if placed.found else source


class _Placed(ast.NodeTransformer):
    found = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), keywords=keywords) if (
                name in FACTORIES and all(keyword.arg not in ("device", None) for keyword in keywords)
            ):
                self.found += 1
                node.keywords.append(ast.keyword("device", ast.Constant("cuda")))
        return node
