# SPDX-License-Identifier: Apache-2.0
"""Command lines, in this process and in others: how they end, what they print, and what they import until then."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from typer import Typer
from typer.testing import CliRunner, Result

from verl_kernel.cli import app

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "ray", "triton", "vllm", "verl", "transformers", "matplotlib")
"""Packages whose import takes seconds."""

_SCRIPT = """
import importlib, json, os, sys, traceback
from pathlib import Path

import omegaconf, pyarrow.parquet, pydantic, rich.table  # light, and shared by all forks

from verl_kernel.cli import COMMANDS, app

folder, lines, heavy = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])


def module(name):
    ours = "verl_kernel.commands." + name.replace("-", ".")
    return importlib.import_module(ours if name in COMMANDS else name + ".command")


for name in {words[0] for words in lines if words and (words[0] in COMMANDS or "." in words[0])}:
    module(name)  # what forks share is imported once
for number, words in enumerate(lines):
    if pid := os.fork():
        _, _, used = os.wait4(pid, 0)
        (folder / f"{number}.cpu").write_text(str(used.ru_utime + used.ru_stime))
        continue
    for target, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{number}.{name}", os.O_WRONLY | os.O_CREAT), target)
    try:
        module(words[0]).app(words[1:]) if words and words[0].startswith("recipes.") else app(words)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / f"{number}.json").write_text(json.dumps([code, [name for name in heavy if name in sys.modules]]))
    os._exit(0)
"""


def invoked(*words: object, exit_code: int = 0, columns: int | None = None, command: Typer = app) -> Result:
    """Run a command in this process, on a terminal of so many columns or on none."""
    done = CliRunner().invoke(command, [*map(str, words)], env={"COLUMNS": columns and str(columns)})
    assert done.exit_code == exit_code, done.output
    return done


def in_a_process(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "verl_kernel", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def assert_one_sentence(error: str, said: str) -> None:
    assert error.startswith("Error: "), error
    assert said in error, error
    assert error.count("\n") == 1, error


@dataclass(frozen=True)
class Done:
    words: tuple[str, ...]
    status: int
    out: str
    error: str
    heavy: list[str]
    """Of `HEAVY`, what the process had imported at its end."""
    seconds: float
    """Of processors, without what all commands import: `_SCRIPT` names it."""


def run_lines(lines: Sequence[Sequence[str]], folder: Path, **variables: str) -> list[Done]:
    """Run command lines in turn in `folder`, each in a fork of a process that has imported their modules alone.

    The first word is a command of `verl-kernel`, or the package of a recipe that is run with `python -m`.
    """
    with TemporaryDirectory() as kept:
        words = [kept, json.dumps([list(line) for line in lines]), json.dumps(HEAVY)]
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, *words], cwd=folder, capture_output=True, text=True, timeout=600,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [_done(tuple(line), Path(kept) / str(number)) for number, line in enumerate(lines)]


def _done(words: tuple[str, ...], base: Path) -> Done:
    status, heavy = json.loads(base.with_suffix(".json").read_text())
    out, error = (base.with_suffix(f".{name}").read_text() for name in ("out", "err"))
    return Done(words, status, out, error, heavy, float(base.with_suffix(".cpu").read_text()))
