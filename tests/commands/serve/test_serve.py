# SPDX-License-Identifier: Apache-2.0
"""The gym options that a service reads, and the status of a pool; tests/env/pool/cluster asks a live one."""

import pytest

from tests.commands.lines import invoked
from verl_kernel.commands.serve import read_gym
from verl_kernel.env import EvalResult, EvalStatus, GymOptions
from verl_kernel.env.pool.stats import JudgeStats, PoolCounters
from verl_kernel.errors import ConfigError


@pytest.fixture
def stats(monkeypatch):
    tally = PoolCounters()
    for status in (EvalStatus.OK, EvalStatus.OK, EvalStatus.CRASH):
        tally.note(EvalResult(task_id="t", status=status))
    judges = (
        JudgeStats(number=0, state="busy", node="a" * 40, pid=11),
        JudgeStats(number=1, state="quarantined", node="b" * 40, pid=12),
        JudgeStats(number=2, state="down"),
    )
    stats = tally.stats(judges, queue=5, held_back=2, prefilter=None)
    monkeypatch.setattr("verl_kernel.commands.serve.status.read_stats", lambda address, name: [stats])
    return stats


def test_it_shows_queue_judges_and_counts(stats):
    output = invoked("serve-status").output
    assert "3: 1 busy, 2 alive, 1 quarantined" in output
    assert "1 crash, 2 ok" in output
    assert all(word in output for word in ("waiting for a judge", "aaaaaaaaaaaa", "down", "results per second"))


def test_json_is_the_record(stats):
    assert type(stats).model_validate_json(invoked("serve-status", "--json").output) == stats


def written(folder, text):
    (path := folder / "gym.yaml").write_text(text)
    return path


@pytest.mark.parametrize("head", ["", "kernelgym:\n  "])
def test_the_gym_of_a_recipe_is_read(tmp_path, head):
    indent = "\n  " if head else "\n"
    lines = ("correctness_trials: 3", "compile_for: [sm_90, gfx942]", "cold_start: ${nowhere}/c.parquet", "reward: {}")
    path = written(tmp_path, head + indent.join((*lines, "address: http://judges:8008")))
    assert read_gym(path) == GymOptions(correctness_trials=3, compile_for=("sm_90", "gfx942"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no keys: --options"),
        ("- 1", "holds no keys: --options names a file that holds a recipe's kernelgym"),
        ("max_turns: 2", "holds no key of the gym"),
        ("device: [", "is no valid YAML .*: --options"),
        ("device: ${nowhere}", "kernelgym.device in .*gym.yaml is .{nowhere}, which refers to another key"),
        ("correctness_trials: 0", "kernelgym.correctness_trials is 0"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_gym(written(tmp_path, text))
