# SPDX-License-Identifier: Apache-2.0
"""AdamW that skips a step in which there is nothing to learn.

If rejection leaves no token (PRS's neutral step, MRS on the whole batch), every gradient is exactly 0, but plain AdamW
would still move the weights, by its momentum and its weight decay. Selected by
`actor_rollout_ref.actor.optim.{optimizer_impl: verl_kernel.loss.optimizer, optimizer: SkippingAdamW}`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

logger = logging.getLogger(__name__)


class SkippingAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW`, except that it skips steps whose gradient is 0 in every parameter on every rank.

    Attributes:
        skipped: number of steps left out so far.
    """

    skipped = 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters, unless all gradients are 0."""
        if closure is not None or self._has_gradient():
            return super().step(closure)
        self.skipped += 1
        logger.warning(
            "the gradient of this step is 0 everywhere (was every turn rejected?): it is skipped, weights and moments "
            "stay as they are (%d such steps so far)",
            self.skipped,
        )
        return None

    def _has_gradient(self) -> bool:
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        local = [grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]
        # Ranks hold shards but must decide alike, so they share one number on the gradients' device.
        count = torch.stack([grad.count_nonzero() for grad in local]).sum() if local else torch.zeros(())
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            torch.distributed.all_reduce(count)
        return bool(count)
