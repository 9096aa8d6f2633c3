# SPDX-License-Identifier: Apache-2.0
"""Every key of verl that a recipe sets is one of those whose values a start looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import verl_kernel.config
from verl_kernel.verl_keys import KEYS

FOLDER = Path(next(iter(verl_kernel.config.__path__)))
FILES = [path for path in sorted(FOLDER.rglob("*.yaml")) if not path.stem.endswith(("_sft", "_mix"))]
"""All but those for the SFT trainer."""
LOSS = "actor_rollout_ref.actor.policy_loss"
OURS = (
    *("weight_transfer.", "kernelgym.", "algorithm.trloo.", "algorithm.rec.", "algorithm.topr.", "algorithm.ada."),
    *("trainer.v1.sampler.sampler_kwargs.", f"{LOSS}.turn_correction.", f"{LOSS}.rec.", f"{LOSS}.topr."),
)


def leaves(node: dict[str, Any], above: str) -> Iterator[str]:
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def keys(path: Path) -> set[str]:
    """Keys that a file of configuration sets; folders of its own, at the top, are for references."""
    text = path.read_text()
    package = text.split()[2] if text.startswith("# @package ") else "_global_"
    nodes = yaml.safe_load(text) or {}
    found = leaves(nodes, "" if package == "_global_" else f"{package}.")
    return {key for key in found if "." in key and not key.startswith(("defaults", "hydra."))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_key_of_verl_that_a_recipe_sets_is_looked_at(path: Path) -> None:
    assert [key for key in sorted(keys(path)) if key not in KEYS and not key.startswith(OURS)] == []


def test_files_set_keys() -> None:
    assert {"trainer.n_gpus_per_node", "algorithm.rollout_correction.bypass_mode"} <= set().union(*map(keys, FILES))
