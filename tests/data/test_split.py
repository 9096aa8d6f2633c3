# SPDX-License-Identifier: Apache-2.0
"""A split keeps near duplicates together and every row, and is the same for the same seed; overlaps are counted."""

import json
import re
from functools import cache
from random import Random

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands.lines import invoked
from tests.generated import draw_tasks
from verl_kernel.data import families
from verl_kernel.data.families import Families, normal_form, shingles, similarity
from verl_kernel.data.overlap import overlaps
from verl_kernel.data.rows import check_rows, make_row, write_rows
from verl_kernel.data.split import choose, split
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.generated_tasks.conversations import task_messages
from verl_kernel.generated_tasks.kinds import SPLITS
from verl_kernel.quickstart.build import write_tasks
from verl_kernel.quickstart.drawing import draw
from verl_kernel.quickstart.options import Quickstart


@cache
def programs():
    return draw_tasks(60, Random(3))


def renamed(reference: str) -> str:
    """The same task with other names, sizes and a comment."""
    return "# again\n" + re.sub(r"\bx\b", "value", reference).replace("ROWS, COLS", "COLS, ROWS").replace("0.5", "0.25")


@pytest.fixture
def tasks(tmp_path):
    rows = []
    for number, program in enumerate(programs()):
        for text in (program.reference, renamed(program.reference)):
            row = make_row(
                task_messages(program), text, data_source="own", task_id=f"t{len(rows)}", split="all", index=0,
                level=number if number % 2 else None,
            )  # fmt: skip
            rows.append(row | {"note": f"n{len(rows)}"})
    path = tmp_path / "all.parquet"
    write_rows(rows, path)
    return path


def test_no_held_out_task_has_a_near_duplicate_in_training(tasks, tmp_path):
    out = tmp_path / "split"
    found = split(tasks, out, 0.2, 0.7, seed=1)
    train, val = (pq.read_table(out / f"{side}.parquet").to_pylist() for side in ("train", "val"))
    assert found.tasks == len(train) + len(val) == 120
    assert 0 < len(val) <= 24
    assert found.held_out_tasks == len(val)
    forms = [[shingles(normal_form(row["reward_model"]["ground_truth"])) for row in side] for side in (train, val)]
    closest = max(similarity(one, other) for one in forms[0] for other in forms[1])
    assert closest == pytest.approx(found.closest)
    assert closest < 0.7
    for side in ("train", "val"):
        check_rows(out / f"{side}.parquet")


def test_rows_stay_as_they_are_but_for_side_and_place(tasks, tmp_path):
    split(tasks, tmp_path / "split", 0.2, 0.7, seed=1)
    before = {row["note"]: row for row in pq.read_table(tasks).to_pylist()}
    seen = 0
    for side in ("train", "val"):
        for place, row in enumerate(pq.read_table(tmp_path / "split" / f"{side}.parquet").to_pylist()):
            assert (row["extra_info"].pop("split"), row["extra_info"].pop("index")) == (side, place)
            known = before[row["note"]]
            assert {**known, "extra_info": {**known["extra_info"], **row["extra_info"]}} == {
                **row, "extra_info": {**known["extra_info"], **row["extra_info"]},
            }  # fmt: skip
            seen += 1
    assert seen == len(before)


def test_the_report_names_every_task_once_with_its_side(tasks, tmp_path):
    found = split(tasks, tmp_path / "split", 0.2, 0.7, seed=1)
    report = json.loads((tmp_path / "split" / "split.json").read_text())
    assert (report["seed"], report["val"], report["threshold"]) == (1, 0.2, 0.7)
    sides = {task: family["side"] for family in report["families"] for task in family["tasks"]}
    assert len(sides) == 120
    assert list(sides.values()).count("val") == found.held_out_tasks
    assert all(sides[f"t{number}"] == sides[f"t{number + 1}"] for number in range(0, 120, 2))


def test_a_seed_decides(tasks, tmp_path):
    chosen = [split(tasks, tmp_path / f"{number}", 0.2, 0.7, seed).held_out for number, seed in enumerate((1, 1, 2))]
    assert chosen[0] == chosen[1] != chosen[2]


@given(st.lists(st.integers(1, 30), min_size=2, max_size=40), st.floats(0.01, 0.99), st.integers(0, 9))
def test_choices_fit_and_leave_something_to_train_on(sizes, share, seed):
    chosen = choose(sizes, share, Random(seed))
    held = sum(sizes[number] for number in chosen)
    assert 0 < len(chosen) < len(sizes)
    assert chosen == sorted(set(chosen))
    assert held <= max(1, round(share * sum(sizes))) or (len(chosen) == 1 and held == min(sizes))


def test_minima_find_what_comparing_all_pairs_finds(monkeypatch):
    texts = [text for program in programs() for text in (program.reference, renamed(program.reference))]
    exact = Families(texts, 0.6)
    monkeypatch.setattr(families, "EXACT", 0)
    assert Families(texts, 0.6).members == exact.members
    assert 1 < len(exact.members) < exact.forms


def test_minima_agree_as_often_as_sets_are_similar():
    random = np.random.default_rng(0)
    one = np.sort(random.choice(2**32, 400, replace=False).astype(np.uint32))
    other = np.sort(np.concatenate([one[:300], random.choice(2**32, 100, replace=False).astype(np.uint32)]))
    minima = families._minima([one, other])
    assert (minima[0] == minima[1]).mean() == pytest.approx(similarity(one, other), abs=0.12)


@pytest.mark.parametrize(("share", "threshold", "words"), [(0.0, 0.7, "--val is 0"), (0.1, 1.5, "--threshold is 1.5")])
def test_a_share_and_a_threshold_lie_between_0_and_1(tasks, tmp_path, share, threshold, words):
    with pytest.raises(ConfigError, match=words):
        split(tasks, tmp_path / "x", share, threshold, seed=0)


def test_tasks_that_cannot_be_split_are_told(tasks, tmp_path):
    rows = pq.read_table(tasks).to_pylist()
    write_rows(rows[:2], tmp_path / "one.parquet")
    rows[1]["reward_model"]["ground_truth"] = "class Model("
    write_rows(rows, tmp_path / "bad.parquet")
    for name, words in (("one.parquet", "holds one family of 2 tasks"), ("bad.parquet", "row 1")):
        with pytest.raises(DataError, match=words):
            split(tmp_path / name, tmp_path / "x", 0.5, 0.7, seed=0)


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
    said = invoked("data", "audit", tmp_path / "one.parquet", "--train", folder / "train.parquet").output
    assert "near duplicates in training" in said
    assert "kernel_world_new_chain" in said
