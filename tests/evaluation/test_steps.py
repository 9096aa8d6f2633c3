# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from rich.console import Console

from verl_kernel.errors import DataError
from verl_kernel.evaluation.steps import plot_steps, read_steps, steps_table


def write(path, *records):
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")


def step(number, **data):
    return {"step": number, "data": {"training/global_step": number, **data}}


def test_steps_are_read_in_order_and_validation_records_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 0, "data": {"val-core/acc": 1.0}}, step(1, **{"critic/score/mean": 0.5}), step(2))
    assert [s["step"] for s in read_steps(path)] == [1, 2]


def test_a_line_still_being_written_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, step(1))
    path.write_text(path.read_text() + '\n{"step": 2, "da', encoding="utf-8")
    assert len(read_steps(path)) == 1


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="metrics.jsonl does not exist"):
        read_steps(tmp_path / "metrics.jsonl")


def test_an_unlogged_metric_is_shown_as_a_dash(tmp_path):
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    console.print(steps_table([{"step": 1, "critic/score/mean": 0.25}], "run"))
    row = console.export_text().splitlines()[4]
    assert "0.250" in row and row.count(" - ") >= 5


def test_the_curve_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    plot_steps([{"step": 1, "critic/score/mean": 0.25}, {"step": 2, "critic/score/mean": 0.5}], tmp_path / "r.png", "r")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
