# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.commands.serve import read_gym
from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError


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
