# SPDX-License-Identifier: Apache-2.0
"""Every path that a command takes, as something that cannot work: one sentence, which names it, and a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.bad_files import bad_files
from tests.commands.bench.test_curves import write_run
from tests.commands.lines import Done, run_lines
from verl_kernel.cli import COMMANDS
from verl_kernel.commands import data

MISSING, FILE, FOLDER, BELOW, CUT, CUT_BENCH, CUT_LOG, CUT_RUN = (
    "none", "file", "empty", "file/x", "cut.parquet", "cutbench", "cutlog", "cutrun"
)  # fmt: skip
UNANSWERED = "unanswered"
TASKS, READ, WRITTEN = (MISSING, FILE, CUT), (MISSING, FILE), (FILE, BELOW)
"""What is no file of tasks, no folder to read and no folder to write."""

PATHS: dict[str, tuple[str, ...]] = {
    "eval {} k.py": (MISSING, FOLDER, "broken.py"),
    "eval ref.py {}": (MISSING, FOLDER),
    "profile {} k.py": (MISSING, FOLDER, "broken.py"),
    "profile ref.py {}": (MISSING, FOLDER),
    "profile ref.py k.py --page {}": (FOLDER, BELOW),
    "bench --suite {} --kernels empty": TASKS,
    "bench --suite kernelbench:{} --kernels empty": TASKS,
    "bench --suite {} --self-check": TASKS,
    "bench --suite cpu --kernels {}": (*READ, FOLDER),
    "bench --suite cpu --vllm {}": (*READ, FOLDER),
    "bench --suite cpu --kernels empty --out {}": WRITTEN,
    "bench-curves {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH, CUT_RUN, "cut.jsonl", "latin.jsonl"),
    "bench-curves none --out {}.svg": (BELOW,),
    "compare {} empty": (*READ, FOLDER, UNANSWERED, CUT_BENCH),
    "best {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH, CUT_LOG),
    "aces {} --candidates empty --out o.json": TASKS,
    "aces tasks.parquet --candidates {} --out o.json": (*READ, FOLDER),
    "aces tasks.parquet --candidates empty --out {}": (FOLDER, BELOW),
    "data quickstart --out {}": WRITTEN,
    "data quickstart --out o --difficulty {}": (MISSING, FOLDER, "bad.yaml"),
    "recipes.cpu_smollm2 --out {}": WRITTEN,
    "data rows drkernel-rl {} --out o.parquet": (*TASKS, FOLDER, "cut.jsonl"),
    "data rows drkernel-rl tasks.parquet --out {}": (FOLDER, BELOW),
    "data talks drkernel-coldstart {} --out o.parquet": (*TASKS, FOLDER, "cut.jsonl"),
    "data split {} --out o": (*TASKS, FOLDER),
    "data split tasks.parquet --out {}": WRITTEN,
    "data audit {}": (*TASKS, FOLDER),
    "data audit ref.py --out {}": (FILE, FOLDER, BELOW),
    "data coldstart --suite {} --run r --out o.parquet": TASKS,
    "data coldstart --suite tasks.parquet --run {} --out o.parquet": (MISSING, FOLDER, CUT_BENCH),
    "data coldstart --suite tasks.parquet --run r --out {}": (FOLDER, BELOW),
    "remix --data {} --model model --out o": TASKS,
    "remix --data talks.parquet --model {} --out o": (*READ, FOLDER),
    "remix --data talks.parquet --model model --out {}": WRITTEN,
    "watch {} -- true": WRITTEN,
    "watch o -- ./{}": (MISSING, FILE),
    "report {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH, CUT_RUN),
    "recipes.cpu_study {} --out o": (MISSING, FILE, FOLDER, "bad.yaml"),
    "recipes.cpu_study plan.yaml --out {}": WRITTEN,
    "recipes.cpu_study plan.yaml --out o --rows {}": (MISSING, "cut.jsonl"),
    "eval ref.py k.py --address http://127.0.0.1:9 --address-key {}": (MISSING, FOLDER),
    "serve --port 0 --keys {}": (MISSING, FOLDER, FILE),
    "serve --port 0 --state {}": WRITTEN,
    "serve --port 0 --options {}": (MISSING, FOLDER, "bad.yaml"),
    "mcp --suite {}": TASKS,
    "preflight --config-name=mine --config-dir={}": READ,
}
"""Command lines by what stands in their braces, each of which cannot work there."""
WITHOUT_PATHS = {"doctor", "serve-status", "serve-drain"}
RECIPES = {"recipes.cpu_smollm2", "recipes.cpu_study"}
LINES = {line.format(path): path for line, paths in PATHS.items() for path in paths}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = bad_files(tmp_path_factory.mktemp("paths"))
    write_run(root / UNANSWERED, {})
    return root


@pytest.fixture(scope="module")
def done(folder: Path) -> dict[str, Done]:
    return dict(zip(LINES, run_lines([line.split() for line in LINES], folder), strict=True))


def test_every_command_that_takes_a_path_is_here():
    named = {tuple(line.split()[:2]) for line in PATHS}
    assert {first for first, _ in named} == COMMANDS.keys() - WITHOUT_PATHS | RECIPES
    known = {each.name or each.callback.__name__ for each in data.app.registered_commands if each.callback}
    assert {second for first, second in named if first == "data"} == known


@pytest.mark.parametrize("line", LINES)
def test_an_impossible_path_is_named_in_one_sentence(done: dict[str, Done], line: str):
    ended = done[line]
    assert ended.status not in (0, 1) or (ended.status == 1 and line.startswith("preflight")), ended
    assert ended.error.startswith("Error: "), ended.error
    assert ended.error.count("\n") == 1, ended.error
    assert LINES[line] in ended.error
    assert "Traceback" not in ended.error
    assert ": " in ended.error.removeprefix("Error: ") or "; " in ended.error, "no remedy"


def test_no_file_was_changed_and_nothing_was_left_behind(folder: Path, done: dict[str, Done]):
    assert (folder / "file").read_text() == "text\n"
    assert not [*(folder / "empty").iterdir()]
    assert not [*folder.glob("o*.parquet"), *folder.glob("*.part"), *folder.glob("o.json")]
