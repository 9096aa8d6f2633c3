# SPDX-License-Identifier: Apache-2.0
"""What every group of options promises, whatever its keys are."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from verl_kernel.advantage.options import TrlooOptions
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.option_group import OptionGroup, nearest, option_names
from verl_kernel.reward.options import RolloutOptions
from verl_kernel.reward.profiling import ProfilingReward
from verl_kernel.sampler.options import PRSOptions

GROUPS = (GymOptions, RolloutOptions, ProfilingReward, TrlooOptions, PRSOptions, TurnCorrectionOptions)
KEYS = [(kind, key) for kind in GROUPS for key in option_names(kind)]
NO_OPTION = (b"auto", 1j, object(), {1}, [None], float("nan"), -0.5, ("low", 2), "no such word")


@pytest.mark.parametrize(("kind", "key"), KEYS, ids=str)
def test_an_impossible_value_is_one_sentence(kind: type[OptionGroup], key: str) -> None:
    texts = "record_dir best_kernels reference_cache trial_choice verdict_cache cold_start address_key".split()
    for value in NO_OPTION[: -1 if key in texts else None]:
        with pytest.raises(ConfigError) as caught:
            kind(**{key: value})
        sentence = str(caught.value)
        assert sentence.startswith(f"{kind.NODE}.{key} "), value
        assert "; " in sentence, value
        assert "\n" not in sentence, value


@pytest.mark.parametrize(
    ("kind", "key", "value", "sentence"),
    [
        (GymOptions, "memory_mb", -3, "kernelgym.memory_mb is -3; it must be a whole number of at least 1"),
        (GymOptions, "run_timeout_s", "long", "kernelgym.run_timeout_s is 'long'; it must be a finite number of at "),
        (GymOptions, "ablation", 1, "kernelgym.ablation is 1; it must be true or false"),
        (GymOptions, "lock_dir", "tmp", "kernelgym.lock_dir is 'tmp'; it must be the full path of a folder, the same "),
        (GymOptions, "reference_cache", 3, "kernelgym.reference_cache is 3; it must be text, or null"),
        (RolloutOptions, "turn_tokens", 0, "kernelgym.turn_tokens is 0; it must be a whole number of at least 1, or "),
        (ProfilingReward, "scale", -1, "kernelgym.reward.scale is -1; it must be a finite number of at least 0"),
        (TrlooOptions, "gamma", 2, "algorithm.trloo.gamma is 2; it must be a number between 0 and 1"),
        (TrlooOptions, "baseline", "x", "algorithm.trloo.baseline is 'x'; it must be one of turn, padded"),
        (PRSOptions, "seed", 0.5, "trainer.v1.sampler.sampler_kwargs.seed is 0.5; it must be a whole number"),
        (TurnCorrectionOptions, "cap", 0, f"{TurnCorrectionOptions.NODE}.cap is 0; it must be a finite number above 0"),
    ],
)
def test_the_sentence(kind: type[OptionGroup], key: str, value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**{key: value})
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("kind", GROUPS)
def test_groups_are_frozen_keys_that_travel_and_can_be_varied(kind: type[OptionGroup]) -> None:
    options = kind()
    assert hash(options) == hash(kind())
    assert pickle.loads(pickle.dumps(options)) == options == replace(options)
    with pytest.raises(FrozenInstanceError):
        options.NODE = "other"  # type: ignore[misc]
    with pytest.raises(ConfigError, match=rf"^{kind.NODE}.nothing is not an option; known keys are "):
        kind.from_node({"nothing": 1})
    assert kind.from_node(None) == kind.from_node({}) == options


def test_a_list_becomes_a_tuple() -> None:
    options = GymOptions(require_isolation=["seccomp"], run_timeout_s=3)
    assert (options.require_isolation, options.run_timeout_s) == (("seccomp",), 3.0)
    with pytest.raises(ConfigError, match=r"require_isolation is 'seccomp'; it must be a list of names"):
        replace(options, require_isolation="seccomp")


def test_who_only_names_the_gyms_options_does_without_pydantic() -> None:
    probe = "import sys, verl_kernel.env.options; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "known", "asked"),
    [
        ("trllo", ("trloo", "turn_grpo"), "did you mean trloo? "),
        ("TRLOO", ("trloo", "turn_grpo"), "did you mean trloo? "),
        ("sm90", ("sm_80", "sm_90"), "did you mean sm_90? "),
        ("sm_70", ("sm_80", "sm_90"), ""),
        ("lax", ("strict", "coverage", "off"), ""),
        (5, ("trloo",), ""),
        ("x", (), ""),
    ],
)
def test_a_name_is_offered_where_one_is_nearer_than_all_others(name: Any, known: tuple[str, ...], asked: str) -> None:
    assert nearest(name, known) == asked
