# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.page.runs import right, write_run
from tests.commands.lines import invoked
from tests.reporting.runs import kernel, step, validation, write_lines


def report(folder: Path, columns: int | None = 160) -> str:
    return invoked("report", folder, columns=columns).stdout


def test_report_prints_steps_and_changes_and_writes_the_page(tmp_path):
    steps = [step(n, **{"critic/score/mean": n / 4, "timing_s/step": 3.5}) for n in (1, 2)]
    write_lines(tmp_path / "metrics.jsonl", validation(0, acc=0.25), *steps, validation(2, acc=0.5))
    write_lines(tmp_path / "kernels.jsonl", kernel(1, code="the kernel"))
    said = report(tmp_path)
    for words in ("fast@1.2", "3.500", "x 2.00", "+0.250", "times: unknown"):
        assert words in said
    page = (tmp_path / "report.html").read_text()
    assert "the kernel" in page
    assert "<polyline" in page


def test_data_sources_have_a_row_of_right_answers_each(tmp_path):
    rows = [{"data_source": source} for source in ("seen", "unseen", "unseen")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "val.parquet")
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text(
        f"data: {{val_files: {tmp_path}/val.parquet}}\nactor_rollout_ref: {{rollout: {{val_kwargs: {{n: 4}}}}}}\n"
    )
    records = []
    for number, shares in ((0, (0.5, 0.25)), (2, (0.75, 0.5))):
        both = [validation(number, source, acc=share) for source, share in zip(("seen", "unseen"), shares, strict=True)]
        records.append({"step": number, "data": {**both[0]["data"], **both[1]["data"]}})
    write_lines(tmp_path / "metrics.jsonl", *records)
    rows = [line.split() for line in report(tmp_path).replace("│", " ").splitlines()]
    assert ["seen", "4", "0.500", "0.750"] in rows
    assert ["unseen", "8", "0.250", "0.500"] in rows


def test_a_run_that_only_validated_is_reported_without_a_change(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", validation(0, acc=0.25))
    said = report(tmp_path)
    assert "0 steps of" in said
    assert "0.250" in said
    assert "change" not in said
    assert said.count("step 0") == 1
    assert "fewer than two steps" in (tmp_path / "report.html").read_text()


def test_one_step_is_one_and_no_window_has_one_steps(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", *[step(n, **{"critic/score/mean": n / 4}) for n in (1, 2)])
    assert "first 1 step " in report(tmp_path)
    write_lines(tmp_path / "metrics.jsonl", step(1, **{"critic/score/mean": 0.5}))
    assert report(tmp_path).startswith("1 step of ")


def test_output_that_is_no_terminal_is_not_squeezed(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", step(1, **{"prs/rejected_fraction": 0.5}))
    said = report(tmp_path, columns=None)
    assert "PRS rejected" in said
    assert "…" not in said


def test_a_study_run_is_a_training_run(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", step(1, **{"critic/score/mean": 0.5}))
    (tmp_path / "run.json").write_text('{"fingerprint": "x"}')
    assert "1 step of" in report(tmp_path)


def test_the_folder_of_a_bench_gets_the_benchs_page(tmp_path):
    write_run(tmp_path, [right("softmax-a", speedup=1.75)])
    assert report(tmp_path) == f"report: {tmp_path / 'report.html'}\n"
    assert "softmax-a" in (tmp_path / "report.html").read_text()
