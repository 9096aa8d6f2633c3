# SPDX-License-Identifier: Apache-2.0
"""How the gym's code is cut into files: none is too long, no folder is too full, and imports form no circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import verl_kernel.env

ENV = Path(verl_kernel.env.__file__).parent
FILES = {
    ".".join(("verl_kernel.env", *path.relative_to(ENV).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ENV.rglob("*.py")
}
LAZY = (ast.FunctionDef, ast.AsyncFunctionDef)


def imported(node):
    """Names of the gym's modules that a node of a syntax tree imports, but for what functions import when they run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom):
            names = [f"{child.module}.{item.name}" for item in child.names]
            yield from (name if name in FILES else child.module for name in names)
        elif not isinstance(child, LAZY):
            yield from imported(child)


def test_imports_form_no_circle_even_for_types():
    graph = {
        name: {other for other in imported(ast.parse(path.read_text())) if other in FILES}
        for name, path in FILES.items()
        if name != "verl_kernel.env"  # it names what it exports, and loads it when it is asked for
    }
    TopologicalSorter(graph).prepare()


def test_a_file_has_at_most_500_lines():
    assert not [str(path) for path in FILES.values() if len(path.read_text().splitlines()) > 500]


def test_a_folder_has_at_most_15_modules():
    folders = {path.parent for path in FILES.values()}
    assert not [folder for folder in folders if len([*folder.glob("*.py")]) > 15]


def test_the_gym_has_each_name_that_it_exports():
    assert [name for name in verl_kernel.env.__all__ if not hasattr(verl_kernel.env, name)] == []
