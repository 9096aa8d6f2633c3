# SPDX-License-Identifier: Apache-2.0
"""What docs/notes/not_tested_on_gpu.md lists as unproven is told by tests and sections that exist."""

import ast
import re
from pathlib import Path

from benchmarks.bench_gpu import SECTIONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def rows(page, title):
    lines = (DOCS / page).read_text().partition(f"# {title}\n")[2].partition("\n## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("|")][2:]


def test_every_unproven_point_names_what_tells():
    files = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    trees = [ast.parse(path.read_text()) for path in files]
    tests = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    known = {section.name for section in SECTIONS} | tests | {f"tests/gpu/{file.name}" for file in files}
    points = rows("notes/not_tested_on_gpu.md", "Not tested on a GPU")
    assert len(points) > 10
    for point, _, tells in points:
        named = re.findall(r"section `([^`]+)`|`(test_\w+)`|(tests/gpu/\w+\.py)", tells)
        assert {name for names in named for name in names if name} <= known, point
        for word in re.findall(r"-k (\w+)", tells):
            assert any(word in name for name in known), point
        assert "`" in tells or tells == "the same", point


def test_every_section_is_described():
    described = [row[0].strip("`") for row in rows("gpu.md", "Tests and the first report")]
    assert described == [section.name for section in SECTIONS]
