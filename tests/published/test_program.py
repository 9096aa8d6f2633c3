# SPDX-License-Identifier: Apache-2.0
"""A candidate from a package's text and a host part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.published.packages import Part
from tests.published.program import Program

PROGRAM = Program(
    "twice",
    (Part("module.py", "twice"),),
    "rows, columns = 2, 3",
    {"x": "torch.ones(rows, columns)"},
    "2 * x * self.weight",
    "twice(x) * self.weight",
    init={"columns": "columns"},
    parameters={"weight": "torch.ones(columns)"},
    changes=(("own.", ""),),
    wrong=("return twice(x)", "return x"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text("import nowhere\n\ndef twice(x):\n    return own.sum([x, x])\n")
    return tmp_path


def ran(text: str, name: str) -> torch.Tensor:
    names: dict = {}
    exec(
        text.partition("import triton\n")[0] + text.partition("from triton.language.extra import libdevice\n")[2], names
    )
    task: dict = {}
    exec(PROGRAM.task(), task)
    return names[name](*task["get_init_inputs"]())(*task["get_inputs"]())


def test_task_and_candidate_agree(folder: Path) -> None:
    assert torch.equal(ran(PROGRAM.candidate(folder), "ModelNew"), ran(PROGRAM.task(), "Model"))


def test_a_mistake_is_one_replacement(folder: Path) -> None:
    assert torch.equal(ran(PROGRAM.candidate(folder, is_wrong=True), "ModelNew"), torch.ones(2, 3))


def test_what_is_replaced_must_be_there(folder: Path) -> None:
    with pytest.raises(ValueError, match="there is no 'tl.' to replace"):
        replace(PROGRAM, changes=(("tl.", ""),)).candidate(folder)
