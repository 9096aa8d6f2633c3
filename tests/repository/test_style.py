# SPDX-License-Identifier: Apache-2.0
"""Tests are named so that a line of a report holds the name; ruff (PT018) checks that an assertion states one fact."""

import ast
from pathlib import Path

LONGEST = 59


def names(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    functions = (node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return [node.name for node in functions if node.name.startswith("test_")]


def test_names_of_coroutines_count_too(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text("def test_one(): ...\nasync def test_two(): ...\ndef helper(): ...\n")
    assert names(path) == ["test_one", "test_two"]


def test_names_of_tests_are_short():
    found = {
        str(path): [name for name in names(path) if len(name) > LONGEST]
        for path in Path(__file__).parent.rglob("test_*.py")
    }
    assert {path: long for path, long in found.items() if long} == {}
