# SPDX-License-Identifier: Apache-2.0
"""Kernels with measured times: folders and files that hold them, and the figures of a comparison."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.lines import in_a_process
from tests.sentences import refused
from verl_kernel.bench.measured import ClockFigures, ComparedKernel, MeasuredKernel, by_bound, read_measured
from verl_kernel.bench.measured import compared as compared_with
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import DataError, InfraError

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = {name: (EXAMPLES / f"{name}.py").read_text() for name in ("reference", "fused", "wrong")}


def folder_of(folder, times):
    folder.mkdir(exist_ok=True)
    for name in TEXTS:
        shutil.copy(EXAMPLES / f"{name}.py", folder)
    (folder / "measured.json").write_text(times if isinstance(times, str) else json.dumps(times))
    return folder


def parquet_of(path, **columns):
    usual = {"reference": [TEXTS["reference"]], "kernel": [TEXTS["fused"]], "milliseconds": [0.25]}
    kept = {name: values for name, values in {**usual, **columns}.items() if values is not None}
    pq.write_table(pa.table(kept), path)
    return path


def compared(predicted_ms, measured_ms, *, task="t", bound="L2", interval=None):
    return ComparedKernel(task, "k", bound, predicted_ms, measured_ms, interval)


def test_a_folder_holds_a_task_its_kernels_and_their_times(tmp_path):
    kernels = read_measured(folder_of(tmp_path / "relu", {"fused.py": 0.5, "wrong.py": 2}))
    assert [(one.task.task_id, one.name, one.ms) for one in kernels] == [
        ("relu", "fused.py", 0.5), ("relu", "wrong.py", 2.0)
    ]  # fmt: skip
    assert kernels[0].source == TEXTS["fused"]


def test_a_folder_of_such_folders_holds_several_tasks(tmp_path):
    for name in ("b", "a"):
        folder_of(tmp_path / name, {"fused.py": 0.5})
    assert [one.task.task_id for one in read_measured(tmp_path)] == ["a", "b"]


def test_a_parquet_file_holds_a_kernel_a_row(tmp_path):
    (kernel,) = read_measured(parquet_of(tmp_path / "times.parquet"))
    assert (kernel.task.reference, kernel.source, kernel.ms) == (TEXTS["reference"], TEXTS["fused"], 0.25)


@pytest.mark.parametrize(("times", "sentence"), [
    ("{", "is no JSON"), ("{}", "holds no times"), ("[1]", "holds no times"),
    ({"none.py": 1.0}, "none.py does not exist"), ({"fused.py": 0}, "the time is 0; it must be a positive number"),
    ({"fused.py": "1 ms"}, "the time is '1 ms'"), ({"fused.py": True}, "the time is True"),
    ('{"fused.py": NaN}', "the time is nan"),
])  # fmt: skip
def test_what_is_no_time_is_refused_with_its_file(tmp_path, times, sentence):
    with refused(sentence, "none.py" if "none.py" in times else "measured.json", by=DataError):
        read_measured(folder_of(tmp_path / "relu", times))


@pytest.mark.parametrize(("columns", "sentence"), [
    ({"kernel": None}, "has no column 'kernel': it must have the columns reference, kernel, milliseconds"),
    ({"reference": ["class"]}, "row 0: reference"),
    ({"kernel": [3]}, "row 0: reference and kernel must be the texts of programs"),
    ({"milliseconds": [-1.0]}, "row 0: the time is -1.0"),
])  # fmt: skip
def test_rows_that_hold_no_kernel_are_refused_with_their_number(tmp_path, columns, sentence):
    with refused(sentence, by=DataError):
        read_measured(parquet_of(tmp_path / "times.parquet", **columns))


def test_a_failure_of_the_gym_says_nothing_of_a_kernel():
    kernel = MeasuredKernel(Task(TEXTS["reference"]), "fused.py", TEXTS["fused"], 1.0)
    error = EvalError(stage="clock", type="JudgeLost", message="its judge has gone")
    with pytest.raises(InfraError, match="fused.py was not judged: its judge has gone"):
        compared_with(kernel, EvalResult(task_id="t", status=EvalStatus.INFRA_ERROR, error=error))


def test_figures_of_a_comparison():
    kernels = [
        compared(1.0, 1.1, interval=(0.9, 1.2)), compared(2.0, 3.0, interval=(1.5, 2.5)), compared(5.0, 2.0, task="u"),
    ]  # fmt: skip
    figures = ClockFigures.of(kernels)
    assert figures.held == pytest.approx(1 / 3)
    assert (figures.order.pairs, figures.order.in_order) == (1, 1)
    assert figures.agreement.count == 3


def test_kernels_are_grouped_by_what_bounds_them():
    kernels = [compared(1.0, 1.0, bound=bound) for bound in ("L2", "device memory", "L2")]
    assert {name: len(some) for name, some in by_bound(kernels).items()} == {"L2": 2, "device memory": 1}


@pytest.mark.processes
def test_the_command_compares_right_kernels_and_names_others(tmp_path):
    folder = folder_of(tmp_path / "relu", {"fused.py": 0.004, "wrong.py": 1.0})
    done = in_a_process("clock", "validate", folder)
    assert done.returncode == 0, done.stderr
    assert "relu, wrong.py: incorrect: the output differs" in done.stdout
    assert "furthest off first" in done.stdout
    assert "fused.py" in done.stdout
