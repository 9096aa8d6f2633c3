# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest

from tests.env.test_sizes import REFERENCE as SIZED
from tests.generated import draw_tasks
from tests.sentences import refused
from verl_kernel.data.files import read_yaml, value_of
from verl_kernel.data.rows import check_rows, make_row, task_from_row, write_rows
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.generated_tasks.conversations import task_messages


def make_rows(count=3):
    facts = {"data_source": "drawn", "split": "train"}
    return [
        make_row(task_messages(program), program.reference, task_id=program.task_id, index=index, **facts)
        for index, program in enumerate(draw_tasks(count, Random(0)))
    ]


def test_good_rows_pass_and_make_tasks(tmp_path):
    path = tmp_path / "train.parquet"
    rows = make_rows()
    write_rows(rows, path)
    check_rows(path)
    for row in rows:
        assert task_from_row(row).task_id == row["extra_info"]["task_id"]
        assert (row["agent_name"], row["ability"]) == ("kernel_agent", "kernel")
        assert row["data_source"] == "drawn"


REFERENCE = make_rows()[1]["reward_model"]["ground_truth"]
INFO = make_rows()[1]["extra_info"]


def judged_by(text):
    return {"reward_model": {"style": "rule", "ground_truth": text}}


@pytest.mark.parametrize(("changes", "key"), [
    (judged_by(None), "reward_model.ground_truth"),
    (judged_by(REFERENCE.replace("def get_inputs", "def inputs")), "get_inputs"),
    (judged_by("class Model("), "reward_model.ground_truth"),
    ({"prompt": []}, "`prompt`"),
    ({"prompt": [{"role": "user", "content": None}]}, "`prompt`"),
    (
        judged_by(REFERENCE.replace("class Model", "class Block")) | {"extra_info": INFO | {"entry_point": "Block"}},
        "name that class in the prompt",
    ),
    ({"extra_info": make_rows()[0]["extra_info"]}, "as in row 0, whose reference is another"),
])  # fmt: skip
def test_a_bad_row_is_named(tmp_path, changes, key):
    path = tmp_path / "train.parquet"
    rows = make_rows()
    rows[1] |= changes
    write_rows(rows, path)
    with refused(path, "row 1", key, by=DataError):
        check_rows(path)


def test_a_data_source_that_equals_no_other_is_refused(tmp_path):
    write_rows([row | {"data_source": float("nan")} for row in make_rows()], tmp_path / "val.parquet")
    with refused("row 0: key `data_source` is nan: store the name", by=DataError):
        check_rows(tmp_path / "val.parquet")


def test_a_missing_an_unreadable_and_an_empty_file_are_named(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    junk, empty = tmp_path / "junk.parquet", tmp_path / "empty.parquet"
    junk.write_bytes(b"no parquet")
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), empty)
    for path, part in ((tmp_path / "none.parquet", "does not exist"), (junk, "readable"), (empty, "no rows")):
        with refused(part, path.name, by=DataError):
            check_rows(path)


def test_a_prompt_may_name_the_class_of_another_entry_point(tmp_path):
    facts = {"data_source": "blocks", "task_id": "b", "split": "val", "index": 0, "entry_point": "Block"}
    rows = [
        make_row([{"role": "user", "content": text}], REFERENCE.replace("class Model", "class Block"), **facts)
        for text in ("Write BlockNew as in `class ModelNew`.", "Write a kernel.")
    ]
    write_rows(rows, tmp_path / "val.parquet")
    check_rows(tmp_path / "val.parquet")
    assert [task_from_row(row).candidate_class for row in rows] == ["BlockNew"] * 2


@pytest.mark.parametrize(("text", "value"), [
    ("1e-3", 0.001), ("2", 2), ("true", True), ("null", None), ("off", "off"), ("[a, 1]", ["a", 1]), ("[a", "[a"),
    ("a: b: c", "a: b: c"),
])  # fmt: skip
def test_a_value_is_what_yaml_says_or_the_text(text, value):
    assert value_of(text) == value


def test_a_key_that_stands_twice_is_refused(tmp_path):
    (path := tmp_path / "twice.yaml").write_text("a: 1\na: 2\n")
    with pytest.raises(ConfigError, match=r"twice.yaml is no valid YAML \(line 2: found duplicate key .*\): name it"):
        read_yaml(path, "name it")


def test_a_row_may_hold_another_ones_keys(tmp_path):
    (path := tmp_path / "rows.yaml").write_text("one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}\n")
    assert read_yaml(path, "")["two"] == {"a": 1, "b": 3}


def test_a_row_may_name_the_sizes_of_its_task():
    reference = SIZED.format(sizes="[1]", parameters="columns", annotation="").rpartition("WORKLOADS")[0]
    row = make_row([], reference, data_source="d", task_id="t", split="val", index=0)
    row["extra_info"]["workloads"] = '[{"columns": 256}, {"columns": 257}]'
    assert task_from_row(row).workloads == ({"columns": 256}, {"columns": 257})
    row["extra_info"]["workloads"] = "256, 257"
    with pytest.raises(DataError, match="extra_info.workloads of row t is no JSON: store a list"):
        task_from_row(row)
