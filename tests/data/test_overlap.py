# SPDX-License-Identifier: Apache-2.0

import pytest
from typer.testing import CliRunner

from verl_kernel.cli import app
from verl_kernel.data.overlap import overlaps
from verl_kernel.data.rows import write_rows
from verl_kernel.errors import DataError
from verl_kernel.quickstart.build import write_tasks
from verl_kernel.quickstart.drawing import draw
from verl_kernel.quickstart.options import Quickstart
from verl_kernel.world.kinds import SPLITS


@pytest.fixture
def folder(tmp_path):
    write_tasks(draw(Quickstart(train_tasks=64, val_tasks=4), conversations=0), tmp_path)
    return tmp_path


def test_unseen_splits_have_no_near_duplicate(folder):
    found = overlaps(folder / "train.parquet", folder / "val.parquet")
    assert [one.source for one in found] == [f"kernel_world_{split}" for split in SPLITS]
    assert [one.tasks for one in found] == [4, 4, 16, 8]
    assert [one.near for one in found] == [4, 4, 0, 0]
    assert [one.closest for one in found[:2]] == [1.0, 1.0]
    assert max(one.closest for one in found[2:]) < 0.7


def test_a_file_that_is_not_there_is_named(folder):
    with pytest.raises(DataError, match=r"none\.parquet"):
        overlaps(folder / "none.parquet", folder / "val.parquet")


@pytest.mark.processes
def test_the_audit_prints_the_table(folder, tmp_path):
    tasks = draw(Quickstart(train_tasks=2, val_tasks=1), conversations=0)
    write_rows(tasks.world.rows(tasks.validated["new_chain"], "new_chain"), tmp_path / "one.parquet")
    words = ["data", "audit", str(tmp_path / "one.parquet"), "--train", str(folder / "train.parquet")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "near duplicates in training" in done.output
    assert "kernel_world_new_chain" in done.output
