# SPDX-License-Identifier: Apache-2.0
"""Flags, `--options` and `--set` of every command that judges."""

import pytest
import typer
from typer.testing import CliRunner

from verl_kernel.commands.gym_options import FLAGS, USUAL, read_gym, takes_gym
from verl_kernel.env import GymOptions
from verl_kernel.env.options import STRICT
from verl_kernel.errors import ConfigError


def written(folder, text):
    (path := folder / "gym.yaml").write_text(text)
    return path


def chosen(*words, flags=tuple(FLAGS), **settings):
    """The gym that a command with these flags gets from a command line."""
    app, seen = typer.Typer(), []

    @app.command()
    @takes_gym(*flags, **settings)
    def command(*, extra: int = 1, gym: GymOptions) -> None:
        seen.append((extra, gym))

    result = CliRunner().invoke(app, list(words), catch_exceptions=False, standalone_mode=False)
    assert not result.exception, result.output
    ((extra, gym),) = seen
    assert extra == 1
    return gym


def test_without_words_it_is_the_strict_gym():
    assert chosen() == GymOptions(**STRICT) == GymOptions(**{key: USUAL[key] for key in STRICT})


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--trials=7"], {"correctness_trials": 7}),
        (["--set", "correctness_trials=7", "--set=disk_mb=9"], {"correctness_trials": 7, "disk_mb": 9}),
        (["--set=require_isolation=[seccomp]"], {"require_isolation": ("seccomp",)}),
        (["--compile-for=sm_90,gfx942"], {"compile_for": ("sm_90", "gfx942")}),
        (["--set=compile_for=sm_90,gfx942"], {"compile_for": ("sm_90", "gfx942")}),
        (["--trials=7", "--set=correctness_trials=9"], {"correctness_trials": 9}),
        (["--timeout=5"], dict.fromkeys(("reference_timeout_s", "load_timeout_s", "run_timeout_s"), 5.0)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_words_change_the_strict_gym(words, values):
    assert chosen(*words) == GymOptions(**STRICT | values)


@pytest.mark.parametrize("head", ["", "kernelgym:\n  "])
def test_a_recipes_gym_is_read_from_a_file(tmp_path, head):
    lines = ("correctness_trials: 3", "compile_for: [sm_90, gfx942]", "cold_start: ${nowhere}/c.parquet", "reward: {}")
    path = written(tmp_path, head + ("\n  " if head else "\n").join(lines))
    assert chosen(f"--options={path}") == GymOptions(correctness_trials=3, compile_for=("sm_90", "gfx942"))


def test_a_flag_that_is_given_changes_a_file(tmp_path):
    path = written(tmp_path, "{correctness_trials: 3, memory_mb: 99}")
    assert chosen(f"--options={path}", "--trials=5") == GymOptions(correctness_trials=5, memory_mb=99)


def test_a_commands_own_defaults_come_before_a_file(tmp_path):
    path = written(tmp_path, "{references: trusted, verdict_cache: x, disk_mb: 9}")
    gym = chosen(f"--options={path}", references="jailed", drops=("verdict_cache",))
    assert gym == GymOptions(references="jailed", disk_mb=9)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no keys: --options"),
        ("- 1", "holds no keys: --options names a file that holds a recipe's kernelgym"),
        ("max_turns: 2", "holds no key of the gym"),
        ("device: [", "is no valid YAML .*: --options"),
        ("{device: cpu, num_judge: 3}", "kernelgym.num_judge is not an option; did you mean num_judges?"),
        ("device: ${nowhere}", "kernelgym.device in .*gym.yaml is .{nowhere}, which refers to another key"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_gym(written(tmp_path, text))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--set=disk"], "--set is 'disk'; it must be an option with its value, as in disk_mb=512"),
        (["--set=disk=1"], "--set names 'disk', did you mean disk_mb"),
        (["--set", ""], "--set is ''; it must be an option with its value"),
        (["--set==3"], "--set is '=3'; it must be an option with its value"),
        (["--set=trials=1"], "--set names 'trials'"),
        (["--set=disk_mb=x"], "kernelgym.disk_mb is 'x'; it must be a whole number"),
    ],
)
def test_bad_words_are_refused_in_a_sentence(words, sentence):
    with pytest.raises(ConfigError, match=sentence.replace(", did", "; did")):
        chosen(*words)
