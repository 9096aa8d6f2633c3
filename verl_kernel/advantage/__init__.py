# SPDX-License-Identifier: Apache-2.0
"""Advantage estimators: pure tensor functions with verl's estimator signature, by the name they register under."""

from __future__ import annotations

from collections.abc import Callable

import torch

from verl_kernel.adaptive import AdaOptions
from verl_kernel.advantage.ada_est import ada_est
from verl_kernel.advantage.ada_seq import ada_seq
from verl_kernel.advantage.asymre import asymre_shift
from verl_kernel.advantage.opmd import opmd_baseline
from verl_kernel.advantage.rec_options import RecOptions
from verl_kernel.advantage.red_drop import red_drop_balance
from verl_kernel.advantage.topr import ToprOptions, topr_signed
from verl_kernel.advantage.trloo import trloo
from verl_kernel.advantage.turn_grpo import turn_grpo
from verl_kernel.option_group import OptionGroup

ESTIMATORS: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {
    "trloo": trloo,
    "turn_grpo": turn_grpo,
    # The REC family's baseline is the plain mean of the group: the same function under the name its papers lead to.
    "rec_group_mean": turn_grpo,
    "asymre_shift": asymre_shift,
    "opmd_baseline": opmd_baseline,
    "red_drop_balance": red_drop_balance,
    "topr_signed": topr_signed,
    "ada_est": ada_est,
    "ada_seq": ada_seq,
}

OPTIONS: tuple[type[OptionGroup], ...] = (RecOptions, ToprOptions, AdaOptions)
"""Nodes of `algorithm` that some of them read besides `algorithm.trloo`."""
