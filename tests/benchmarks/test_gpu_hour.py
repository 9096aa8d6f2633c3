# SPDX-License-Identifier: Apache-2.0
"""The first hour on a GPU: its plan, steps that fail, hang or are killed, its page, and all on a pretended one."""

import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.bench_gpu import SECTIONS
from benchmarks.gpu.judged import FILE
from benchmarks.gpu_hour import plan
from benchmarks.hour import clock, page
from benchmarks.hour.steps import SHORTEST_S, Step, result_of, run_steps
from tests.bench.recorded import WRONG, timed, turn, write_run
from tests.bench.stub_endpoint import StubEndpoint, answers_by_model
from tests.benchmarks.scripts import ROOT
from tests.env.waiting import until
from verl_kernel.bench.records import SuiteTask, read_run
from verl_kernel.bench.suites import load_suite

BENCH = ("--suite=kernelbench:k", "--base-url=http://x/v1", "--model=m")


def steps_of(tmp_path, *bench):
    return plan(Namespace(out=tmp_path, bench=[*bench], pretend=False, wheels=None, profile="h100"))


def step(name, code, **fields):
    """A step that runs a line of Python, in which `note` appends a word to the step's own record."""
    note = "from pathlib import Path; note = lambda word: Path({!r}).open('a').write(word)".format(f"{name}.said")
    return Step(name, fields.pop("minutes", 1.0), ("-c", f"{note}; {code}"), **fields)


def run(steps, out, seconds=600.0):
    return run_steps(steps, out, seconds, lambda: page.write(out, steps, True))


@pytest.fixture
def said(monkeypatch, tmp_path):
    """What a step has noted, over all runs."""
    monkeypatch.setattr("benchmarks.hour.steps.ROOT", tmp_path)
    return lambda name: path.read_text() if (path := tmp_path / f"{name}.said").exists() else ""


def test_the_plan_fits_its_hour_and_leaves_no_section_out(tmp_path):
    steps = steps_of(tmp_path, *BENCH)
    assert [one.name for one in steps] == [
        "doctor", "environment", "isolation", "conformance", "corpus", "bench_gpu", "clock", "bench",
        "clock of the bench",
    ]  # fmt: skip
    assert sum(one.minutes for one in steps) <= 60
    words = [word for one in steps for word in one.command]
    assert {section.name for section in SECTIONS} <= {*words}
    assert {*BENCH, "--levels=2", "--turns=3", "--device=cuda"} <= {*words}
    assert [one.name for one in steps_of(tmp_path)] == [one.name for one in steps][:-2]
    limits = {section.name: section.limit_s for section in SECTIONS}
    assert sum(limits[name] for name in steps[5].command if name in limits) <= 60 * steps[5].minutes


def test_a_failed_step_costs_no_others_and_runs_again(tmp_path, said):
    code = "note('b'); assert len(open('b.said').read()) > 1, 'the driver said no'"
    steps = [step("a", "note('a')"), step("b", code), step("c", "note('c')"), step("d", "note('d')", reads=("b",))]
    out = tmp_path / "out"
    assert not run(steps, out)
    assert [result_of(out, name).state for name in "abcd"] == ["done", "failed", "done", "done"]
    text = (out / page.FILE).read_text()
    assert "## b: failed" in text
    assert "the driver said no" in text
    assert run(steps, out)
    assert [said(name) for name in "abcd"] == ["a", "bb", "c", "dd"]
    assert "failed" not in (out / page.FILE).read_text()
    assert run(steps, out)
    assert [said(name) for name in "abcd"] == ["a", "bb", "c", "dd"]


def test_what_takes_the_rest_leaves_later_steps_their_time(tmp_path, said):
    hold = "import time; note('b'); Path('out/b/kept').touch(); time.sleep(300)"
    steps = [step("b", hold, takes_rest=True), step("c", "note('c')", minutes=60 / 60)]
    out = tmp_path / "out"
    assert run(steps, out, 60 + SHORTEST_S + 4)
    assert [result_of(out, name).state for name in "bc"] == ["stopped", "done"]
    assert (out / "b" / "kept").exists()
    assert run(steps, out, SHORTEST_S - 1)
    assert [result_of(out, name).state for name in "bc"] == ["left out", "done"]
    assert (out / "b" / "kept").exists()


KILLED = """
import signal
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from benchmarks.hour import steps
steps.ROOT = Path({root!r})
from tests.benchmarks.test_gpu_hour import hanging, run
run(hanging(), Path({root!r}) / "out")
"""


def hanging():
    """The second of three steps hangs unless it may go on."""
    wait = "import os, time; note(f'{os.getpid()} ')\nwhile not Path('may').exists(): time.sleep(0.02)"
    return [step("a", "note('a')"), step("b", wait), step("c", "note('c')")]


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)])
def test_a_killed_hour_goes_on_with_what_is_missing(tmp_path, said, number):
    command = [sys.executable, "-c", KILLED.format(root=str(tmp_path))]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True) as hour:
        child = int(until(lambda: said("b")))
        os.kill(hour.pid, number)
    until(lambda: not Path(f"/proc/{child}/stat").exists() or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z")
    out = tmp_path / "out"
    assert [result_of(out, name).state for name in "abc"] == ["done", "not begun", "not begun"]
    (tmp_path / "may").touch()
    assert run(hanging(), out)
    assert (said("a"), said("c")) == ("a", "c")
    assert len(said("b").split()) == 2


def test_the_page_counts_finished_tasks_beside_published_ones(tmp_path):
    turns = [
        turn("t1", 0, 1, timed(1.1, timing_source="cuda_event")),
        turn("t1", 0, 2, WRONG),
        turn("t2", 0, 1, WRONG),
        turn("t2", 0, 2, timed(1.5, timing_source="cuda_event", env={"foreign_processes": 1})),
        turn("t3", 0, 1, timed(9.0)),  # its second turn is still to come
    ]
    steps = steps_of(tmp_path, *BENCH)
    page.write(tmp_path, steps, False)
    assert "No model was asked yet" in (tmp_path / page.FILE).read_text()
    write_run(tmp_path / "bench", turns, tasks=3, samples=1, model="drkernel-14b")
    page.write(tmp_path, steps, False)
    text = (tmp_path / page.FILE).read_text()
    for line in (
        "| Dr. Kernel 14B | turn 3 | 49.2 | 25.6 |", "| Dr. Kernel 14B, STTS | last turn | 59.8 | 31.6 |",
        "| Dr. Kernel 14B, STTS | best of history | 80.9 | 47.8 |", "arXiv 2602.05885",
        "| drkernel-14b, here | last turn | 50.0 | 50.0 |", "| drkernel-14b, here | best of history | 100.0 | 50.0 |",
        "2 of 3 tasks", "measured on a GPU", "Beside 1 of 4 answers another process used the GPU",
    ):  # fmt: skip
        assert line in text, line


def test_the_page_names_what_did_not_hold(tmp_path):
    (tmp_path / "corpus").mkdir()
    checks = [{"what": "it holds", "held": True, "detail": ""}, {"what": "it does not", "held": False, "detail": "no"}]
    sections = {"corpus": {"state": "stopped", "last_words": "status None", "checks": checks}}
    (tmp_path / "corpus" / "report.json").write_text(json.dumps({"sections": sections}))
    page.write(tmp_path, steps_of(tmp_path), True)
    text = (tmp_path / page.FILE).read_text()
    assert "| corpus | it does not | no |" in text
    assert "section corpus came to its end" in text
    assert "it holds" not in text
    assert "whose times mean nothing" in text.splitlines()[0]


def test_timed_kernels_come_from_reports_and_benches(tmp_path):
    (tmp_path / FILE).write_text('{"reference": "r", "kernel": "k", "milliseconds": 2.0}\n')
    tasks = [SuiteTask(task_id=name, task_hash="h", reference=f"reference of {name}") for name in ("t1", "t2")]
    folder = write_run(tmp_path / "bench", [turn("t1", 0, 1, timed(4.0), code="c"), turn("t2", 0, 1, WRONG)], tasks)
    assert [*clock.timed_kernels(tmp_path)] == [{"reference": "r", "kernel": "k", "milliseconds": 2.0}]
    expected = {"reference": "reference of t1", "kernel": "c", "milliseconds": 0.25}
    assert [*clock.timed_kernels(folder)] == [expected]
    with pytest.raises(SystemExit, match="no kernel of empty was rewarded and timed"):
        clock.main([str(tmp_path / "times.parquet"), str(tmp_path / "empty")])


def _has_a_line(path):
    return path.exists() and b"\n" in path.read_bytes()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_of_the_hour_on_a_pretended_gpu_killed_twice(tmp_path):
    level = tmp_path / "KernelBench" / "level2"
    level.mkdir(parents=True)
    for number, item in enumerate(load_suite("cpu").tasks[:2], 1):
        (level / f"{number}_chain.py").write_text(item.task.reference)
    out, small = tmp_path / "out", ("--trials=1", "--turns=1", "-n2", "--requests=1", "--max-tokens=100")
    with StubEndpoint(answers=answers_by_model(2), delay=3.0) as stub:
        words = (f"--suite=kernelbench:{level.parent}", f"--base-url={stub.url}", "--model=stub", *small)
        command = [sys.executable, "benchmarks/gpu_hour.py", "--out", str(out), "--pretend", "--", *words]
        for begun in (out / "isolation" / "output.log", out / "bench" / "turns.jsonl"):
            with subprocess.Popen(command, cwd=ROOT) as hour:
                # `bench` makes its file before it writes down what was asked, and a line after that.
                until(lambda begun=begun, hour=hour: hour.poll() is not None or _has_a_line(begun), 3000)
                hour.kill()
        doctor, answers = (out / "doctor.json").stat().st_mtime_ns, len(read_run(out / "bench")[1])
        stub.delay = 0.0
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    text = (out / page.FILE).read_text()
    assert done.returncode == 0, text
    names = [one.name for one in steps_of(out, *words)]
    assert {name: result_of(out, name).state for name in names} == dict.fromkeys(names, "done"), text
    assert (out / "doctor.json").stat().st_mtime_ns == doctor
    assert answers < len(read_run(out / "bench")[1]) == 4
    for name in ("clock", "clock of the bench"):
        assert pq.read_table(out / name / "kernels.parquet").num_rows > 0
        assert "predicted over measured" in (out / f"{name}.log").read_text()
    assert "| stub, here | last turn |" in text
    assert "2 of 2 tasks" in text
