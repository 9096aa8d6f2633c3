# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel bench` against a stub endpoint, with real judges."""

import json
import signal
import subprocess
import sys
import time
from random import Random

import pytest

from tests.bench.stub_endpoint import StubEndpoint, answers_by_model, model_of
from tests.commands.lines import assert_one_sentence, invoked
from tests.env.waiting import until
from tests.interrupts import hears_interrupts
from verl_kernel.bench.records import read_run, read_tasks
from verl_kernel.bench.suites import load_suite
from verl_kernel.reward.extract import extract_code

pytestmark = pytest.mark.processes

LIGHT = ("--device=cpu", "--trials=1", "--compile-for=off", "--memory-checks=off")
WALL_CLOCK = {"stage_seconds", "queue_seconds", "attempts", "isolation", "env"}


def words(stub, out, *more, tasks=3, turns=2):
    return [
        *("--suite=cpu", f"--tasks={tasks}", f"--turns={turns}", f"--base-url={stub.url}", "--model=stub"),
        *(*LIGHT, "--retries=0", f"--out={out}", *more),
    ]


def bench(*arguments, exit_code=0):
    return invoked("bench", *arguments, exit_code=exit_code)


def process(*arguments):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "verl_kernel", "bench", *arguments]
    return subprocess.Popen(command, preexec_fn=hears_interrupts, **pipes)


def what_counts(folder):
    """All answers without what a wall clock decides."""
    found = {}
    for turn in read_run(folder)[1]:
        dumped = turn.model_dump(mode="json", exclude={"generate_s", "judge_s"})
        dumped["result"] = {key: value for key, value in dumped["result"].items() if key not in WALL_CLOCK}
        found[turn.task_id, turn.sample, turn.turn] = dumped
    return found


def test_a_run_its_tables_and_its_folder(tmp_path):
    with StubEndpoint() as stub:
        done = bench(*words(stub, tmp_path / "run", "-n", "2"))
        assert len(stub.asked) == 12
        again = bench(*words(stub, tmp_path / "run", "-n", "2", "--requests=2", "--num-judges=2"))
        assert "is complete: nothing to do" in again.stderr
        assert len(stub.asked) == 12
        other = bench(*words(stub, tmp_path / "run", "-n", "3"), exit_code=2)
    assert "whose samples is 2, and this one's is 3" in other.stderr
    header, turns = read_run(tmp_path / "run")
    asked = (header.suite, header.tasks, header.source, header.device, header.feedback_chars)
    assert asked == ("cpu", 3, "endpoint", "cpu", 440)
    assert all("class Model" in task.reference for task in read_tasks(tmp_path / "run"))
    assert header.gym == {"correctness_trials": 1, "true_size": "auto"}
    assert {turn.result.status.value for turn in turns} > {"ok"}
    assert (tmp_path / "run" / "report.html").is_file()
    scores = json.loads(bench(*words(stub, tmp_path / "run", "-n", "2", "--json")).stdout)
    assert scores["answers"] == 12
    assert scores["timing_sources"] == ["simulated"]
    everything = bench(*words(stub, tmp_path / "run", "-n", "2", "--all")).stdout
    for said in ("3 tasks x 2 samples x 2 turns: 12 answers", "fast@1.2 (sure)", "cpu, simulated times", "or --all",
                 "times: simulated: a model of a GPU, no measurement"):  # fmt: skip
        assert said in done.stdout, said
    assert done.stdout.count("\n") < 20
    for more in ("fast@1.5", "by turn"):
        assert more not in done.stdout
        assert more in everything
    assert "cpu, simulated times" in everything


def test_several_temperatures_are_a_run_each_and_one_table(tmp_path):
    with StubEndpoint() as stub:
        done = bench(*words(stub, tmp_path / "run", "--temperature=1,0.5", tasks=1, turns=1))
        assert [body["temperature"] for body in stub.asked] == [1.0, 0.5]
        again = bench(*words(stub, tmp_path / "run", "--temperature=1,0.5", "--json", tasks=1, turns=1))
        assert len(stub.asked) == 2
    assert "(best)" in done.stdout
    assert [read_run(tmp_path / "run" / f"temperature_{at}")[0].temperature for at in ("1", "0.5")] == [1.0, 0.5]
    assert {at: scores["answers"] for at, scores in json.loads(again.stdout).items()} == {"1": 1, "0.5": 1}


@pytest.mark.exhaustive
def test_malformed_answers_end_a_run_that_can_go_on(tmp_path):
    with StubEndpoint(always=b"<html>Log in</html>") as stub:
        stopped = bench(*words(stub, tmp_path), exit_code=3)
    assert not (tmp_path / "run.json").exists()
    assert f"{stub.url} sent a page of HTML (<html>Log in</html>) and no chat completion" in stopped.stderr
    with StubEndpoint(["malformed"] * 3) as stub:
        done = bench(*words(stub, tmp_path, "--temperature=0.5", "--requests=1", tasks=2))
    assert [turn.failure for turn in read_run(tmp_path)[1]].count("malformed") == 1
    assert "1 malformed" in " ".join(done.stdout.split())


def test_an_endpoint_that_is_down_is_one_sentence(tmp_path):
    asked = ("--suite=cpu", "--base-url=http://127.0.0.1:1/v1", "--model=m", f"--out={tmp_path / 'run'}")
    done = bench(*asked, exit_code=3)
    assert done.stdout == ""
    assert_one_sentence(done.stderr, "127.0.0.1:1/v1 does not answer")
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.fixture
def kernels(tmp_path):
    """Of the suite's first two tasks: a right, a lazy and a wrong program; of a third nothing."""
    known, folder = answers_by_model(2), tmp_path / "kernels"
    folder.mkdir()
    for item in load_suite("cpu").tasks[:2]:
        for sample, answer in enumerate(known[model_of(item.task.reference)][:3]):
            (folder / f"{item.task.task_id}_{sample}.py").write_text(extract_code(answer))
    return folder


def test_saved_kernels_and_tasks_that_have_none(tmp_path, kernels):
    shared = ("--suite=cpu", f"--kernels={kernels}", *LIGHT, "--json")
    scores = json.loads(bench(*shared, "--tasks=3", f"--out={tmp_path / 'all'}").stdout)
    assert (scores["tasks"], scores["samples"], scores["answers"], scores["missing"]) == (3, 3, 6, 3)
    assert {turn.sample: turn.result.rewarded for turn in read_run(tmp_path / "all")[1]} == {0: True, 1: True, 2: False}
    scores = json.loads(bench(*shared, "--tasks=3", "--only-present", f"--out={tmp_path / 'present'}").stdout)
    assert (scores["tasks"], scores["answers"], scores["missing"]) == (2, 6, 0)
    first = json.loads(bench(*shared, "--tasks=2", "-n", "1", f"--out={tmp_path / 'first'}").stdout)
    assert (first["samples"], first["answers"], first["missing"]) == (1, 2, 0)
    turns = bench(*shared, "--turns=2", f"--out={tmp_path / 'turns'}", exit_code=2)
    assert "--turns is for models" in turns.stderr


@pytest.mark.exhaustive
def test_the_self_check_of_the_built_in_suite(tmp_path):
    done = bench("--suite=cpu", "--tasks=3", "--self-check", f"--out={tmp_path}", *LIGHT)
    assert "cpu: 3 of 3 references are right and as fast as themselves" in done.stdout


@pytest.mark.exhaustive
def test_an_interrupt_ends_all_and_the_same_command_goes_on(tmp_path):
    with StubEndpoint(delay=3.0) as stub:  # long, so that the other answers are still to come when one is judged
        running = process(*words(stub, tmp_path, "--requests=1"))
        wait_for_lines(tmp_path, 1, running)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=300)
        assert running.returncode == 130
        assert "Interrupted: what was finished stays, and the same command goes on." in said
        assert "Traceback" not in said
        stub.delay = 0.0
        bench(*words(stub, tmp_path, "--requests=1"))
    assert len(read_run(tmp_path)[1]) == 6


def wait_for_lines(folder, lines, running):
    """Wait until the run has written so many lines, or has ended."""
    path = folder / "turns.jsonl"
    until(lambda: running.poll() is not None or (path.exists() and path.read_bytes().count(b"\n") >= lines))


def kept_in(folder):
    return what_counts(folder) if (folder / "run.json").exists() else {}


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_run_killed_five_times_ends_with_the_same_table(tmp_path):
    rng, tables = Random(7), []
    with StubEndpoint(delay=0.05) as stub:
        asked = words(stub, tmp_path / "undisturbed", "-n", "2", "--json", "--temperature=0", tasks=4, turns=3)
        tables.append(bench(*asked).stdout)
        assert len(stub.asked) == 24
        asked = [word.replace("undisturbed", "killed") for word in asked]
        kills = 0
        for moment in range(5):
            written = kept_in(tmp_path / "killed")
            running = process(*asked)
            if moment % 4:
                wait_for_lines(tmp_path / "killed", min(23, len(written) + rng.randint(1, 3)), running)
            time.sleep(rng.uniform(0.0, 0.3 if moment % 4 else 4.0))
            running.kill()
            running.communicate()
            kills += running.returncode == -signal.SIGKILL
            assert len(kept_in(tmp_path / "killed")) >= len(written)
        assert kills >= 4
        tables.append(bench(*asked).stdout)
    assert what_counts(tmp_path / "killed") == what_counts(tmp_path / "undisturbed")
    assert json.loads(tables[0]) == json.loads(tables[1])
    assert json.loads(tables[0])["answers"] == 24
