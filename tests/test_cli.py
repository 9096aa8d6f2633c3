# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import verl_kernel
from tests.commands.lines import run_lines
from verl_kernel.cli import COMMANDS, app
from verl_kernel.commands import data


def test_help_lists_every_command_and_imports_none_of_them():
    probe = (
        "import sys; from verl_kernel.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m in ('torch', 'verl', 'ray') or m.startswith('verl_kernel.commands')))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert all(name in done.stdout for name in COMMANDS)


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"verl-kernel {verl_kernel.__version__}"


DATA = [command.name or command.callback.__name__ for command in data.app.registered_commands]
HELPS = [(name, "--help") for name in COMMANDS] + [("data", name, "--help") for name in DATA]


@pytest.fixture(scope="module")
def helps(tmp_path_factory):
    return run_lines(HELPS, tmp_path_factory.mktemp("helps"), COLUMNS="80", NO_COLOR="1", FORCE_COLOR="1")


@pytest.mark.slow
def test_every_command_answers_help_with_its_own_name(helps):
    for done in helps:
        assert done.status == 0, done
        assert f"verl-kernel {' '.join(done.words[:-1])} " in done.out, done


@pytest.mark.slow
def test_help_fits_80_columns_without_colour(helps):
    style = r"\x1b\[(0|1|2|3|4|7|22|23)(;[0-9])*m"  # bold, dim ...
    texts = {done.words: re.sub(style, "", done.out) for done in helps}
    assert {words: line for words, text in texts.items() for line in text.splitlines() if len(line) > 80} == {}
    assert [words for words, text in texts.items() if "\x1b" in text] == []


@pytest.mark.slow
def test_a_terminal_without_utf_8_gets_sentences(tmp_path):
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "verl_kernel", "data", "audit", "nö ne.py"]
    done = subprocess.run(command, env={**os.environ, **ascii_only}, capture_output=True, timeout=300)
    error = done.stderr.decode("ascii")
    assert done.returncode == 2, error
    assert re.fullmatch(r"Error: .*ne\.py.*: .*\n", error), error


@pytest.mark.slow
def test_help_imports_nothing_heavy(helps):
    assert {done.words: done.heavy for done in helps if done.heavy} == {}


@pytest.mark.parametrize(("words", "found"), [
    ("verl-kernel bench-", {"bench-board", "bench-curves", "bench-harbor"}), ("verl-kernel eval --fail", {"--fail-on"}),
    ("verl-kernel data ro", {"rows"}), ("verl-kernel data rows --lev", {"--levels"}),
])  # fmt: skip
def test_a_shell_completes_commands_and_their_options(words, found, monkeypatch):
    monkeypatch.setenv("_VERL_KERNEL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    done = CliRunner().invoke(app, prog_name="verl-kernel")
    assert {*done.output.split()} == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status"),
    [("eval examples/reference.py examples/fused.py --device cpu", 2), ("data quickstart --out OUT", 1)],
)
def test_a_damaged_torch_is_one_sentence_in_any_process(tmp_path, line, status):
    root = Path(__file__).parents[1]
    (tmp_path / "torch.py").write_text("raise ImportError('libcudnn.so.9: cannot open shared object file')\n")
    command, environment = [Path(sys.executable).parent / "verl-kernel", *line.split()], {"PYTHONPATH": str(tmp_path)}
    run = {"cwd": root, "env": os.environ | environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **run, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    assert "(libcudnn.so.9: cannot open shared object file): `make env` mends" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_our_own_missing_module_is_not_blamed_on_others(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl_kernel.commands.doctor", None)
    result = CliRunner().invoke(app, ["doctor"])
    assert isinstance(result.exception, ModuleNotFoundError)
