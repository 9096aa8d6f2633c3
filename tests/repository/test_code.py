# SPDX-License-Identifier: Apache-2.0
"""How the package is cut into files: none is too long, no folder is too full, and imports form no circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import verl_kernel
import verl_kernel.env

ROOT = Path(verl_kernel.__file__).parent
FILES = {
    ".".join(("verl_kernel", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imported(tree):
    """Names of the package's modules that a syntax tree imports: also for types alone, and when a function runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{item.name}" for item in node.names]
            yield from (name if name in FILES else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (item.name for item in node.names)


def test_imports_form_no_circle():
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
