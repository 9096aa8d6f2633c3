# SPDX-License-Identifier: Apache-2.0
from tests.reporting.runs import kernel, write_lines
from verl_kernel.bench.best_kernels import best_of_run
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


def test_what_is_sure_of_a_measured_speedup_decides(tmp_path):
    """A page and `verl-kernel best` name the same kernel."""
    lucky, sure = (
        kernel(step, speedup=speedup, sure_speedup=low, timing_source="cuda_event")
        for step, speedup, low in ((1, 3.0, 1.5), (2, 2.5, 2.2))
    )
    path = write_lines(tmp_path / "kernels.jsonl", lucky, sure, kernel(3, speedup=9.0, timing_source="cuda_event"))
    assert [k["step"] for k in best_kernels(read_kernels(path), 2)] == [2]
    assert [best.provenance.step for best in best_of_run(tmp_path)] == [2]


def test_broken_and_foreign_lines_are_left_out(tmp_path):
    foreign = ('{"step": 1}', "null", "7", "not json", '{"step": 2, "task_id": "relu", "sp')
    path = write_lines(tmp_path / "kernels.jsonl", kernel(1) | {"more": 1}, kernel(2, speedup="fast"), *foreign)
    assert [k["step"] for k in read_kernels(path)] == [1]


def test_a_run_without_the_file_has_no_kernels(tmp_path):
    assert read_kernels(tmp_path / "kernels.jsonl") == []
