# SPDX-License-Identifier: Apache-2.0
"""Rows of a validation that asks at several temperatures."""

import pytest

from tests.commands.lines import invoked
from tests.preflight.folder import REFERENCE
from verl_kernel.bench.suites import parquet_suite
from verl_kernel.data.rows import check_rows, make_row, read_rows, write_rows
from verl_kernel.data.temperatures import at_temperatures, read_temperatures, temperature_of
from verl_kernel.errors import ConfigError, DataError

ASKED = [{"role": "user", "content": "Write ModelNew."}]
ROW = make_row(ASKED, REFERENCE, data_source="kernel_world_new_chain", task_id="t", split="val", index=0)


def test_every_temperature_has_a_data_source_of_its_own():
    rows = at_temperatures([ROW], (1.0, 0.3, 0.0))
    assert [row["data_source"] for row in rows] == [f"kernel_world_new_chain@{mark}" for mark in ("1", "0.3", "0")]
    assert [row["extra_info"]["task_id"] for row in rows] == ["t@1", "t@0.3", "t@0"]
    assert [temperature_of(row) for row in rows] == [1.0, 0.3, 0.0]
    assert temperature_of(ROW) is None


def test_nothing_else_of_a_row_changes():
    (row,) = at_temperatures([ROW], (0.5,))
    kept = {key: value for key, value in row["extra_info"].items() if key not in ("task_id", "temperature")}
    assert kept == {key: value for key, value in ROW["extra_info"].items() if key != "task_id"}
    assert {**row, "data_source": "", "extra_info": {}} == {**ROW, "data_source": "", "extra_info": {}}


def test_the_file_is_one_that_a_validation_reads(tmp_path):
    write_rows([ROW], tmp_path / "val.parquet")
    out = tmp_path / "at.parquet"
    said = invoked("data", "temperatures", str(tmp_path / "val.parquet"), "--out", str(out), "--at", "1,0")
    assert said.exit_code == 0
    assert "2 rows, 1 tasks at 2 temperatures" in said.output
    check_rows(out)
    assert [temperature_of(row) for row in read_rows(out)] == [1.0, 0.0]
    assert [item.family for item in parquet_suite(out).tasks] == ["new_chain@1", "new_chain@0"]


@pytest.mark.parametrize("text", ["", "1,", "warm", "1,3", "-1", "nan", "0.3,0.30"])
def test_what_is_no_list_of_temperatures_is_refused(text):
    with pytest.raises(ConfigError, match="--at is "):
        read_temperatures(text, "--at")


def test_rows_of_several_temperatures_are_not_multiplied_again():
    with pytest.raises(DataError, match="several temperatures already"):
        at_temperatures(at_temperatures([ROW], (1.0,)), (0.3,))
