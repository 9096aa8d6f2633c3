# SPDX-License-Identifier: Apache-2.0
"""The planted clusters of ReMix's demonstration, shorter, and its data against what the page says of them."""

import json
from pathlib import Path
from statistics import median

import pytest

from benchmarks.methods.remix_clusters import ARMS, PARTS, Arm, at_initialisation, train

DATA = json.loads((Path(__file__).parents[2] / "docs" / "methods" / "remix_clusters.json").read_text())


def last(arm: Arm, steps: int = 400) -> float:
    return median(train(arm, seed, steps)["curve"][-1]["error"] for seed in range(3))


@pytest.mark.exhaustive
def test_remix_learns_what_its_baselines_cannot():
    ours = last(Arm("remix", selections=2))
    assert ours < 0.5 * min(last(Arm("uniform", selections=2)), last(Arm("uniform", 1, 1, 4, 1)))


def test_each_step_chooses_as_many_as_asked_for():
    for name, arm in ARMS.items():
        for run in DATA["arms"][name]:
            supports = [point["effective"] for point in run["curve"][1:]]
            if arm.kind in ("remix", "uniform"):
                assert supports == [arm.chosen] * len(supports), name
            else:
                assert min(supports) < 1.5, name
                assert max(supports) < 2.5 < PARTS, name


def test_a_softmax_over_wide_inputs_begins_with_one_lora():
    found = at_initialisation(200)
    assert found["median"] < 1.1
    assert found["share_at_most_two"] > 0.84
