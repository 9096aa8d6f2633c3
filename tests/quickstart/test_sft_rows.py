# SPDX-License-Identifier: Apache-2.0
from random import Random

from torch.utils.data import DistributedSampler

from verl_kernel.quickstart.sft_rows import group_by_length


def test_the_sft_trainers_batches_hold_rows_of_similar_length():
    rng = Random(0)
    lengths = [rng.randrange(100, 500) for _ in range(101)]
    order = group_by_length(lengths, 4, Random(1))
    assert len(order) == len(set(order)) == 100
    # As verl.trainer.sft_trainer draws them.
    drawn = list(DistributedSampler(order, num_replicas=1, rank=0, shuffle=True, drop_last=True))
    batches = [[lengths[order[place]] for place in drawn[start : start + 4]] for start in range(0, 100, 4)]
    padding = sum(4 * max(batch) - sum(batch) for batch in batches)
    assert padding < 0.15 * sum(lengths)
    assert order != group_by_length(lengths, 4, Random(2))
    means = [sum(batch) for batch in batches]
    assert means != sorted(means)
