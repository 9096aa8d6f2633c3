# SPDX-License-Identifier: Apache-2.0
"""Folders of kernels in place of a model."""

import pytest

from verl_kernel.bench.models.answers import Question
from verl_kernel.bench.models.saved_kernels import SavedKernels, find_kernels
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.env import EvalStatus, Task
from verl_kernel.errors import DataError

REFERENCE = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
SUITE = Suite(
    "s",
    tuple(
        SuiteItem(Task(REFERENCE + f"x = {n}\n", name), ())
        for n, name in enumerate(["level_1_problem_3", "relu_2", "a"])
    ),
)


def found_in(tmp_path, *names, suite=SUITE):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    found, strangers = find_kernels(tmp_path, suite)
    return {task: sorted(samples) for task, samples in found.items()}, [file.name for file in strangers]


def test_the_two_ways_to_name_a_file(tmp_path):
    found, strangers = found_in(
        tmp_path, "runs/x/level_1_problem_3_sample_0_kernel.py", "runs/x/level_1_problem_3_sample_7_kernel.py",
        "relu_2.py", "relu_2_1.py", "a_4.py", "level_2_problem_3_sample_0_kernel.py", "b.py",
    )  # fmt: skip
    assert found == {"level_1_problem_3": [0, 7], "relu_2": [0, 1], "a": [4]}
    assert strangers == ["b.py", "level_2_problem_3_sample_0_kernel.py"]


def test_two_files_for_one_sample_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"are both sample 0 of a: rename one"):
        found_in(tmp_path, "a.py", "a_0.py")


def test_a_folder_without_kernels_for_the_suite_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no kernel for suite s: name files like level_1_problem_3.py"):
        found_in(tmp_path, "b.py")
    with pytest.raises(DataError, match="is no folder"):
        find_kernels(tmp_path / "nowhere", SUITE)


async def test_a_file_is_an_answer_and_one_that_is_no_text_a_verdict(tmp_path):
    (tmp_path / "a_0.py").write_text("x = 1\n")
    (tmp_path / "a_1.py").write_bytes(b"\xff\xfe\x00")
    model = SavedKernels(find_kernels(tmp_path, SUITE)[0])
    right, wrong = [await model.answer(Question(SUITE.tasks[2], sample, 1, (), 0)) for sample in (0, 1)]
    assert (right.code, right.text, right.verdict) == ("x = 1\n", None, None)
    assert wrong.verdict.status is EvalStatus.LOAD_ERROR
    assert "binary" in wrong.verdict.error.message
    assert wrong.verdict.task_hash
