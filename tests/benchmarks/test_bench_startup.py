# SPDX-License-Identifier: Apache-2.0
"""The parts of the start-up benchmark that read: names, metrics, imports, tables."""

import os
import subprocess
import sys

import pytest

from benchmarks import bench_startup as bench


@pytest.mark.parametrize(("command", "name"), [
    (["ray::TaskRunnerV1.run"], "ray::TaskRunnerV1"), (["ray::IDLE", "", ""], "ray::IDLE"),
    (["python", "-m", "verl.trainer.main_ppo", "--config-name=x"], "verl.trainer.main_ppo"),
    (["python", "-u", "/a/log_monitor.py", "--x"], "log_monitor.py"),
    (["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], "spawned"),
    (["/ray/raylet", "--x"], "raylet"), ([], "?"),
])  # fmt: skip
def test_names(command, name):
    assert bench.name_of(command) == name


def test_the_first_step_is_read_from_the_metrics():
    assert bench.step_s('{"step": 0, "data": {"val": 1}}\n{"step": 1, "data": {"timing_s/step": 12.5}}\n') == 12.5


def test_the_recorder_notes_imports_of_forks_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(bench.RECORDER)
    slow = "import time\nend = time.thread_time() + 0.2\nwhile time.thread_time() < end: pass\n"
    (tmp_path / "slow.py").write_text(slow)
    (tmp_path / "imports").mkdir()
    code = "import slow, os, sys\npid = os.fork()\n"
    code += "if not pid:\n    del sys.modules['slow']\n    import slow, slow\nelse:\n    os.wait()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "BENCH_IMPORTS": str(tmp_path / "imports")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
    seconds = [bench.imported_s(path) for path in (tmp_path / "imports").iterdir()]
    assert len(seconds) == 2
    assert all(0.19 < value < 2 for value in seconds)
    assert bench.imported_s(tmp_path / "imports" / "none") == 0


def test_tables_and_ratios():
    ours = bench.Run(30, 10, [bench.Process(1, "main", 0, 8, 6), bench.Process(2, "small", 1, 0.5)])
    base = bench.Run(60, 10, [bench.Process(1, "main", 0, 17, 12)])
    assert [line.split()[0] for line in bench.table(ours).splitlines()] == ["process", "main", "1", "all"]
    assert bench.table(ours).splitlines()[-1].split() == ["all", "8.5", "6.0"]
    assert bench.ratios([ours], [base]) == "ours / base: start-up 0.50, processor time 0.50, first step 1.00"
    assert bench.summary("base", [base]).startswith("base: first step begins after 60.0 s (17.0 s of processor")
