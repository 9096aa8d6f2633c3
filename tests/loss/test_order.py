# SPDX-License-Identifier: Apache-2.0
"""What it means that PRS empties the mask before the mismatch correction sees it (docs/algorithms.md, Mismatch)."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.protocol import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

from tests.loss.cases import composed
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.loss.turn_corrected import judge

GENERATED = torch.tensor([[1, 1, 0, 1, 1, 1, 0, 1]])
TURNS = ((0, 2), (3, 6), (7, 8))
RATIOS = st.lists(st.sampled_from([0.0, 5e-4, -5e-4, 2e-3, -2e-3, 9.5, -9.5]), min_size=8, max_size=8)


def verl_keeps(logs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rollout = torch.full_like(logs, -30.0)
    tensors = {"old_log_probs": rollout + logs, "rollout_log_probs": rollout, "response_mask": mask}
    correction = composed("mismatch=mrs").algorithm.rollout_correction
    batch, _ = compute_rollout_correction_and_add_to_batch(DataProto.from_dict(tensors), correction)
    return batch.batch["response_mask"]


def without(turns: set[int]) -> torch.Tensor:
    mask = GENERATED.clone()
    for start, stop in (TURNS[turn] for turn in turns):
        mask[:, start:stop] = 0
    return mask


def test_a_prs_rejected_turn_has_no_say_in_mrs():
    logs = torch.tensor([[0.0, 0, 0, 0, 0, 0, 0, math.log(1.02)]], dtype=torch.float64)
    assert not (verl_keeps(logs, GENERATED) * without({2})).any()
    assert verl_keeps(logs, without({2})).tolist() == without({2}).tolist()


@given(logs=RATIOS, rejected=st.sets(st.integers(0, 2)))
def test_with_turn_mrs_the_order_changes_nothing(logs, rejected):
    options = TurnCorrectionOptions(low=0.999, high=1.001, veto=1e-4)
    ratios, mask = torch.tensor([logs]).exp(), without(rejected)
    after = judge(ratios, GENERATED.bool(), options).weights * mask
    assert torch.equal(judge(ratios, mask.bool(), options).weights, after)


@given(logs=RATIOS, kept=st.booleans())
def test_with_whole_trajectories_the_order_changes_nothing(logs, kept):
    # verl refuses a batch without a token: a second row stands for the rest of it.
    both = torch.tensor([logs, [0.0] * 8], dtype=torch.float64)
    masks = torch.cat([without(set() if kept else {0, 1, 2}), GENERATED])
    assert torch.equal(verl_keeps(both, masks), verl_keeps(both, torch.cat([GENERATED, GENERATED])) * masks)
