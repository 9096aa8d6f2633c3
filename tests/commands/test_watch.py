# SPDX-License-Identifier: Apache-2.0
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import Result

from tests.commands.lines import invoked
from tests.env.waiting import until
from verl_kernel.reporting.steps import read_steps


@pytest.fixture(autouse=True)
def handler():
    """The command hands an end on to its trainer, and runs in this process."""
    ours = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, ours)


def trainer(steps: Sequence[int] = (), says: str = "last line", **metrics: float) -> tuple[str, ...]:
    """The command of a program that logs and says what verl's trainer would."""
    lines = [{"step": step, "data": {"training/global_step": step, **metrics}} for step in steps]
    body = f"""
import json, os
print("Training Progress:  50%|x| 1/2 [00:01<00:01]")
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w") as f:
    for line in {lines!r}:
        f.write(json.dumps(line) + "\\n")
print({says!r})
"""
    return sys.executable, "-c", body


def watch(folder: Path, *command: str, options: Sequence[str] = (), exit_code: int = 0) -> Result:
    return invoked("watch", *options, folder, "--", *command, exit_code=exit_code, columns=300)


def test_output_goes_to_the_log_and_steps_to_the_screen(tmp_path):
    done = watch(tmp_path, *trainer((1, 2), **{"critic/score/mean": 0.5}))
    assert "last line" in (tmp_path / "train.log").read_text()
    assert "step 2: reward 0.5" in done.stdout


def test_a_resumed_run_keeps_what_was_logged_before(tmp_path):
    watch(tmp_path, *trainer((1, 2), **{"critic/score/mean": 0.5}))
    again = trainer((2, 3), "Resuming from runs/global_step_1, setting global step to 1", **{"critic/score/mean": 0.75})
    done = watch(tmp_path, *again, options=["--resume"])
    assert "resumed from runs/global_step_1: step 2 is next" in done.stdout
    steps = read_steps(tmp_path / "metrics.jsonl")
    assert [(step["step"], step["critic/score/mean"]) for step in steps] == [(1, 0.5), (2, 0.75), (3, 0.75)]
    assert "last line" in (tmp_path / "train.log").read_text()
    watch(tmp_path, *trainer())
    assert read_steps(tmp_path / "metrics.jsonl") == []


def test_a_run_without_a_checkpoint_shows_its_steps_anew(tmp_path):
    watch(tmp_path, *trainer((1, 2), **{"critic/score/mean": 0.5}))
    again = trainer((1,), "Checkpoint tracker file does not exist: runs/latest", **{"critic/score/mean": 0.75})
    done = watch(tmp_path, *again, options=["--resume"])
    assert "no checkpoint yet: the run begins at step 1" in done.stdout
    assert "step 1: reward 0.75" in done.stdout
    assert "step 2" not in done.stdout


def test_a_failing_trainer_shows_its_end_and_exit_code(tmp_path):
    done = watch(tmp_path, sys.executable, "-c", "import sys; print('the reason'); sys.exit(7)", exit_code=7)
    assert "the reason" in done.stdout
    assert "train.log" in done.stdout


def test_a_step_is_one_line_where_the_output_is_no_terminal(tmp_path):
    names = ("critic/score/mean", "kernel/correct_rate", "kernel/fast@1.2", "kernel/hack_rate", "actor/entropy")
    command = trainer((1, 2), **dict.fromkeys((*names, "timing_s/step"), 0.512345))
    watcher = ["env", "-u", "COLUMNS", sys.executable, "-m", "verl_kernel", "watch", tmp_path, "--", *command]
    done = subprocess.run(watcher, capture_output=True, text=True, timeout=300)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("step 2: "))
    assert line.endswith("seconds 0.512")
    assert len(line) > 80


def test_a_step_says_that_its_times_are_simulated(tmp_path):
    simulated = {"kernel/fast@1.2": 0.5, "kernel/simulated_clock": 1.0}
    for more, words in (({}, "simulated"), ({"kernel/unvalidated_clock": 1.0}, "unvalidated simulated")):
        done = watch(tmp_path, *trainer((1, 2), **simulated, **more))
        assert f"step 2: fast@1.2 0.5, {words} times\n" in done.stdout


def test_ending_the_watcher_ends_the_trainer(tmp_path):
    body = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
    command = [sys.executable, "-m", "verl_kernel", "watch", tmp_path, "--", sys.executable, "-c", body]
    watcher = subprocess.Popen(command)
    log = tmp_path / "train.log"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    pid = int(log.read_text().split()[1])
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(timeout=300) != 0
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_what_hydra_refuses_is_explained_below_its_own_words(tmp_path):
    """The program in verl's place says what Hydra says; what is wrong is found by composing the command's words."""
    says = "print('Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.'); raise SystemExit(1)"
    (tmp_path / "trainer.py").write_text(says)
    command = (sys.executable, str(tmp_path / "trainer.py"), "verl.trainer.main_ppo", "--config-name=kernel_trloo")
    done = watch(tmp_path / "run", *command, "kernelgym.max_turnz=3", exit_code=1)
    assert "Error: kernelgym.max_turnz is no key of kernel_trloo; did you mean kernelgym.max_turns?\n" in done.stderr
    assert "Error" not in watch(tmp_path / "run", *command, exit_code=1).stderr
