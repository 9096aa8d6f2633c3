# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel best`: files that can be imported, with where they come from; better files stay."""

import re
import runpy

import pytest

from tests.bench.recorded import OK, WRONG, timed, turn, write_run
from tests.commands.lines import invoked
from tests.reporting.runs import kernel, write_lines
from verl_kernel.bench.best_kernels import Provenance, file_name

REFERENCE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def best(run, out, *, exit_code=0):
    return invoked("best", run, "--out", out, exit_code=exit_code, columns=200).output


def code(number):
    return f"from __future__ import annotations\n\nimport math\n\n\nclass ModelNew:\n    number = {number} * math.pi\n"


def number_in(path):
    return round(runpy.run_path(str(path))["ModelNew"].number / 3.14159)


def test_the_surest_kernel_of_each_task_can_be_imported(tmp_path):
    measured = {"timing_source": "cuda_event", "env": {"gpu_name": "GPU X", "torch": "2.9", "triton": "3.7"}}
    turns = [
        turn("a", 0, 1, timed(1.2, speedup_low=1.1, **measured), code=code(1)),
        turn("a", 1, 2, timed(1.5, speedup_low=1.3, reference_mode="eager", **measured), code=code(2)),
        turn("a", 0, 2, timed(9.0, speedup_low=1.2, **measured), code=code(3)),
        turn("a", 1, 1, WRONG, code=code(4)),
        turn("b", 0, 1, WRONG, code=code(5)),
    ]
    assert "1.50x (at least 1.30x)" in best(write_run(tmp_path / "run 1", turns), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.py"]
    path = tmp_path / "out" / "a.py"
    assert number_in(path) == 2
    assert Provenance.read(path.read_text()) == Provenance(
        task="a", task_hash="hash of a", run="run 1", model="toy", speedup=1.5, sure_speedup=1.3,
        timing_source="cuda_event", reference_mode="eager", device="GPU X", versions="torch 2.9, triton 3.7",
        sample="1", turn=2, date="2026-01-02T03:04:05+00:00",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "chosen"),
    [
        ([timed(2.0), timed(2.0)], 1),
        ([OK, timed(0.5)], 2),
        ([OK, OK], 1),
        ([timed(1.1), timed(3.0, decoy_kernel=True)], 1),
        ([timed(1.1), timed(3.0, memory_findings=[{"kind": "race", "kernel": "k", "message": "two blocks"}])], 1),
        ([timed(1.1), timed(3.0, task_flags=("constant_output",))], 1),
        ([timed(1.1), timed(3.0, timing_source="cuda_event")], 1),
    ],
)
def test_which_of_two_kernels_is_the_best(tmp_path, verdicts, chosen):
    turns = [turn("a", 0, number, verdict, code=code(number)) for number, verdict in enumerate(verdicts, 1)]
    for order, name in ((turns, "one"), (turns[::-1], "other")):
        best(write_run(tmp_path / name, order), tmp_path / f"{name}_out")
        assert number_in(tmp_path / f"{name}_out" / "a.py") == chosen


def test_a_better_file_stays_and_a_worse_one_is_replaced(tmp_path):
    def after(number, verdict, **fields):
        run = write_run(tmp_path / f"run{number}", [turn("a", 0, 1, verdict, code=code(number), **fields)])
        said = best(run, tmp_path / "out")
        return number_in(tmp_path / "out" / "a.py"), " ".join(said.split())

    assert after(1, timed(1.5))[0] == 1
    for number, verdict in ((2, timed(1.2)), (3, timed(1.5)), (4, OK)):
        kept, told = after(number, verdict)
        assert kept == 1
        assert "kept: 1.50x there" in told
    measured = timed(9.0, timing_source="cuda_event", speedup_low=9.0)
    for number, verdict, fields, words in (
        (5, timed(2.0), {}, "replaced: 1.50x before"),
        (6, timed(9.0), {"task_hash": "another text"}, "left alone.*another version of the task"),
        (7, measured, {}, r"another clock \(simulated\)"),
    ):
        kept, told = after(number, verdict, **fields)
        assert kept == 5
        assert re.search(words, told), told


@pytest.mark.parametrize("text", ["mine = 1\n", "", "# A Triton kernel that verl-kernel has verified.\n#   task: {\n"])
def test_a_file_of_somebody_else_is_left_alone(tmp_path, text):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.py").write_text(text)
    run = write_run(tmp_path / "run", [turn("a", 0, 1, timed(2.0))])
    assert "none of this command's" in best(run, tmp_path / "out")
    assert (tmp_path / "out" / "a.py").read_text() == text


def test_a_training_run_gives_its_best_kernels_too(tmp_path):
    facts = {"reference": REFERENCE, "env": {"gpu_profile": "h100"}, "sample": "p_0", "sure_speedup": 2.5}
    lines = [
        kernel(1, speedup=2.0, code=code(1), reference=REFERENCE),
        kernel(2, speedup=2.5, code=code(2), **facts),
        kernel(3, "sum", speedup=1.5, code=code(3), timing_source="cuda_event"),
    ]
    write_lines(tmp_path / "kernels.jsonl", *lines)
    best(tmp_path, tmp_path / "out")
    found = Provenance.read((tmp_path / "out" / "relu.py").read_text())
    assert (found.step, found.turn, found.sample, found.device) == (2, 1, "p_0", "h100")
    assert found.sure_speedup == 2.5
    assert len(found.task_hash) == 64
    assert number_in(tmp_path / "out" / "relu.py") == 2
    measured = Provenance.read((tmp_path / "out" / "sum.py").read_text())
    assert (measured.speedup, measured.sure_speedup, measured.task_hash) == (1.5, None, None)


@pytest.mark.parametrize("task", ["../up", "a b", "a/b", "ä", "1_x.py", "", "x" * 300, "#\nimport os"])
def test_a_name_that_no_file_can_have_is_changed(tmp_path, task):
    best(write_run(tmp_path / "run", [turn(task, 0, 1, timed(2.0))]), tmp_path / "out")
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == file_name(task)
    assert path.name != f"{task}.py"
    assert runpy.run_path(str(path))["ModelNew"].tau
    assert Provenance.read(path.read_text()).task == task


def test_tasks_whose_names_are_alike_have_files_of_their_own(tmp_path):
    names = ("a b", "a_b", "a/b", "a.b")
    turns = [turn(name, 0, 1, timed(2.0), code=code(number)) for number, name in enumerate(names)]
    run = write_run(tmp_path / "run", turns, tasks=4)
    for what in ("written", "kept: 2.00x there"):
        assert best(run, tmp_path / "out").count(what) == 4
    found = {Provenance.read(path.read_text()).task: number_in(path) for path in (tmp_path / "out").iterdir()}
    assert found == {name: number for number, name in enumerate(names)}


def test_what_speaks_against_a_kernel_is_said(tmp_path):
    verdicts = {"slow": timed(0.5), "copies": timed(2.0, time_coverage=0.0), "good": timed(2.0, time_coverage=1.0)}
    run = write_run(tmp_path / "run", [turn(name, 0, 1, verdict) for name, verdict in verdicts.items()])
    said = {line.split()[1]: line for line in best(run, tmp_path / "out").splitlines() if ".py" in line}
    assert "not surely faster" in said["slow"]
    assert "compute nothing" in said["copies"]
    assert "; " not in said["good"]


def test_nothing_to_write_is_said(tmp_path):
    run = write_run(tmp_path / "run", [turn("a", 0, 1, WRONG)])
    assert "no verified kernel" in best(run, tmp_path / "out", exit_code=2)
    assert not (tmp_path / "out").exists()


def test_a_text_that_is_no_unicode_stops_no_other_kernel(tmp_path):
    write_lines(tmp_path / "kernels.jsonl", kernel(1, code="x = '\ud800'"), kernel(1, "sum", code=code(1)))
    assert "no valid Unicode" in best(tmp_path, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sum.py"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "out").write_text("")
    run = write_run(tmp_path / "run", [turn("a", 0, 1, timed(2.0))])
    assert re.search("--out.* is a file: name another folder", best(run, tmp_path / "out", exit_code=2))
