# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from verl_kernel.reporting.steps import read_steps

VERL_KERNEL = Path(sys.executable).with_name("verl-kernel")

TRAINER = """
import json, os
print("Training Progress:  50%|x| 1/2 [00:01<00:01]")
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w") as f:
    for step in (1, 2):
        f.write(json.dumps({"step": step, "data": {"training/global_step": step, "critic/score/mean": 0.5}}) + "\\n")
print("last line")
"""


def watch(folder: Path, *command: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess:
    return subprocess.run(
        [VERL_KERNEL, "watch", *options, folder, "--", *command],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "300"},
    )


def test_output_goes_to_the_log_and_steps_to_the_screen(tmp_path):
    done = watch(tmp_path, sys.executable, "-c", TRAINER)
    assert done.returncode == 0
    assert "last line" in (tmp_path / "train.log").read_text()
    assert "step 2: reward 0.5" in done.stdout


RESUMED = """
import json, os
print("Resuming from runs/global_step_1, setting global step to 1")
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w") as f:
    for step in (2, 3):
        f.write(json.dumps({"step": step, "data": {"training/global_step": step, "critic/score/mean": 0.75}}) + "\\n")
"""


def test_a_resumed_run_keeps_what_was_logged_before(tmp_path):
    watch(tmp_path, sys.executable, "-c", TRAINER)
    done = watch(tmp_path, sys.executable, "-c", RESUMED, options=["--resume"])
    assert "resumed from runs/global_step_1: step 2 is next" in done.stdout
    steps = read_steps(tmp_path / "metrics.jsonl")
    assert [(step["step"], step["critic/score/mean"]) for step in steps] == [(1, 0.5), (2, 0.75), (3, 0.75)]
    assert "last line" in (tmp_path / "train.log").read_text()
    watch(tmp_path, sys.executable, "-c", "import os; open(os.environ['VERL_FILE_LOGGER_PATH'], 'w')")
    assert read_steps(tmp_path / "metrics.jsonl") == []


def test_a_failing_trainer_shows_its_end_and_exit_code(tmp_path):
    done = watch(tmp_path, sys.executable, "-c", "import sys; print('the reason'); sys.exit(7)")
    assert done.returncode == 7
    assert "the reason" in done.stdout
    assert "train.log" in done.stdout


def test_a_step_is_one_line_where_the_output_is_no_terminal(tmp_path):
    names = (
        "critic/score/mean",
        "kernel/correct_rate",
        "kernel/fast@1.2",
        "kernel/hack_rate",
        "actor/entropy",
        "timing_s/step",
    )
    body = TRAINER.replace('"critic/score/mean": 0.5', ", ".join(f'"{name}": 0.512345' for name in names))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    command = [VERL_KERNEL, "watch", tmp_path, "--", sys.executable, "-c", body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("step 2: "))
    assert line.endswith("seconds 0.512")
    assert len(line) > 80


def test_a_step_says_that_its_times_are_simulated(tmp_path):
    body = TRAINER.replace('"critic/score/mean": 0.5', '"kernel/fast@1.2": 0.5, "kernel/simulated_clock": 1.0')
    command = [VERL_KERNEL, "watch", tmp_path, "--", sys.executable, "-c", body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "step 2: fast@1.2 0.5, simulated times\n" in done.stdout
    command[-1] = body.replace("0.5, ", '0.5, "kernel/unvalidated_clock": 1.0, ')
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "step 2: fast@1.2 0.5, unvalidated simulated times\n" in done.stdout


def test_ending_the_watcher_ends_the_trainer(tmp_path):
    body = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
    watcher = subprocess.Popen([VERL_KERNEL, "watch", tmp_path, "--", sys.executable, "-c", body])
    log = tmp_path / "train.log"
    deadline = time.monotonic() + 30
    while not (log.exists() and "pid" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    trainer = int(log.read_text().split()[1])
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(timeout=30) != 0
    assert not Path(f"/proc/{trainer}").exists()


def test_what_hydra_refuses_is_explained_below_its_own_words(tmp_path):
    """The program in verl's place says what Hydra says; what is wrong is found by composing the command's words."""
    says = "print('Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.'); raise SystemExit(1)"
    (tmp_path / "trainer.py").write_text(says)
    command = (sys.executable, tmp_path / "trainer.py", "verl.trainer.main_ppo", "--config-name=kernel_trloo")
    done = watch(tmp_path / "run", *command, "kernelgym.max_turnz=3")
    assert done.returncode == 1
    assert "Error: kernelgym.max_turnz is no key of kernel_trloo; did you mean kernelgym.max_turns?\n" in done.stderr
    done = watch(tmp_path / "run", *command)
    assert done.returncode == 1
    assert "Error" not in done.stderr
