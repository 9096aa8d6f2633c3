# SPDX-License-Identifier: Apache-2.0
from tests.reporting.runs import kernel, write_lines
from verl_kernel.reporting.kernels import best_kernels, read_kernels


def test_the_fastest_of_each_task_come_first(tmp_path):
    path = write_lines(
        tmp_path / "kernels.jsonl",
        kernel(1, "relu", 2.0),
        kernel(1, "sum", 3.0),
        kernel(2, "relu", 4.0),
        kernel(3, "max", 1.0),
    )
    assert [(k["task_id"], k["speedup"]) for k in best_kernels(read_kernels(path), 2)] == [("relu", 4.0), ("sum", 3.0)]


def test_broken_and_foreign_lines_are_left_out(tmp_path):
    foreign = ('{"step": 1}', "null", "7", "not json", '{"step": 2, "task_id": "relu", "sp')
    path = write_lines(tmp_path / "kernels.jsonl", kernel(1) | {"more": 1}, kernel(2, speedup="fast"), *foreign)
    assert [k["step"] for k in read_kernels(path)] == [1]


def test_a_run_without_the_file_has_no_kernels(tmp_path):
    assert read_kernels(tmp_path / "kernels.jsonl") == []
