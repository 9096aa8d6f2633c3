# SPDX-License-Identifier: Apache-2.0
"""What all estimators share: a run of which nothing enters the loss ends with a sentence."""

import numpy as np
import pytest
import torch

from verl_kernel.advantage.registry import ESTIMATORS, MOST_EMPTY, EmptyBatches
from verl_kernel.errors import TrainingError

FULL, EMPTY = torch.ones(4, 6), torch.zeros(4, 6)


def test_batches_without_a_token_end_a_run():
    batches = EmptyBatches()
    for _ in range(MOST_EMPTY - 1):
        batches.count(EMPTY)
    with pytest.raises(TrainingError, match="the last 3 batches had no token left in the loss"):
        batches.count(EMPTY)


def test_a_batch_with_a_token_begins_the_count_again():
    batches = EmptyBatches()
    for mask in [EMPTY, EMPTY, FULL] * 5:
        batches.count(mask)
    assert batches.streak == 0


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_counts(name, monkeypatch):
    counted = EmptyBatches()
    monkeypatch.setattr("verl_kernel.advantage.registry.EMPTY_BATCHES", counted)
    rewards = torch.zeros(4, 6)
    rewards[:, -1] = torch.tensor([0.5, 1.0, 0.5, 2.0])
    ESTIMATORS[name](rewards, EMPTY, np.array(["a", "a", "b", "b"]), config={"adv_estimator": name})
    assert counted.streak == 1
