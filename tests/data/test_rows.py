# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest

from tests.generated import draw_tasks
from verl_kernel.data.rows import check_rows, make_row, task_from_row, write_rows
from verl_kernel.errors import DataError
from verl_kernel.world.talks import task_messages


def make_rows(count=3):
    return [
        make_row(
            task_messages(program),
            program.reference,
            data_source="drawn",
            task_id=program.task_id,
            split="train",
            index=index,
        )
        for index, program in enumerate(draw_tasks(count, Random(0)))
    ]


def test_good_rows_pass_and_make_tasks(tmp_path):
    path = tmp_path / "train.parquet"
    rows = make_rows()
    write_rows(rows, path)
    check_rows(path)
    for row in rows:
        assert task_from_row(row).task_id == row["extra_info"]["task_id"]
        assert row["agent_name"] == "kernel_agent"
        assert row["ability"] == "kernel"
        assert row["data_source"] == "drawn"


def without_reference(row):
    row["reward_model"] = {"style": "rule", "ground_truth": None}


def without_inputs(row):
    reference = row["reward_model"]["ground_truth"].replace("def get_inputs", "def inputs")
    row["reward_model"]["ground_truth"] = reference


def unparsable(row):
    row["reward_model"]["ground_truth"] = "class Model("


def without_prompt(row):
    row["prompt"] = []


def without_content(row):
    row["prompt"] = [{"role": "user", "content": None}]


def other_class(row):
    row["reward_model"]["ground_truth"] = row["reward_model"]["ground_truth"].replace("class Model", "class Block")
    row["extra_info"]["entry_point"] = "Block"


@pytest.mark.parametrize(
    ("spoil", "key"),
    [
        (without_reference, "reward_model.ground_truth"),
        (without_inputs, "get_inputs"),
        (unparsable, "reward_model.ground_truth"),
        (without_prompt, "`prompt`"),
        (without_content, "`prompt`"),
        (other_class, "name that class in the prompt"),
    ],
)
def test_a_bad_row_is_named(tmp_path, spoil, key):
    path = tmp_path / "train.parquet"
    rows = make_rows()
    spoil(rows[1])
    write_rows(rows, path)
    with pytest.raises(DataError) as caught:
        check_rows(path)
    for part in (str(path), "row 1", key):
        assert part in str(caught.value)


def test_a_missing_an_unreadable_and_an_empty_file_are_named(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    junk, empty = tmp_path / "junk.parquet", tmp_path / "empty.parquet"
    junk.write_bytes(b"no parquet")
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), empty)
    for path, part in ((tmp_path / "none.parquet", "does not exist"), (junk, "readable"), (empty, "no rows")):
        with pytest.raises(DataError, match=part) as caught:
            check_rows(path)
        assert path.name in str(caught.value)


def test_a_prompt_may_name_the_class_of_another_entry_point(tmp_path):
    reference = make_rows(1)[0]["reward_model"]["ground_truth"].replace("class Model", "class Block")
    rows = [
        make_row(
            [{"role": "user", "content": text}],
            reference,
            data_source="blocks",
            task_id="b",
            split="val",
            index=0,
            entry_point="Block",
        )
        for text in ("Write BlockNew as in `class ModelNew`.", "Write a kernel.")
    ]
    write_rows(rows, tmp_path / "val.parquet")
    check_rows(tmp_path / "val.parquet")
    assert [task_from_row(row).candidate_class for row in rows] == ["BlockNew"] * 2
