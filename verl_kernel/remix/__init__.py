# SPDX-License-Identifier: Apache-2.0
"""ReMix: several LoRAs per layer, of which a trained router chooses a fixed number (arXiv 2603.10160)."""

from verl_kernel.remix.adapter import common_choice, export, prompt_choice
from verl_kernel.remix.linear import FEED_FORWARD, ReMixLinear, apply_remix
from verl_kernel.remix.loss import ReMixLoss, leave_one_out, remix_loss
from verl_kernel.remix.options import ReMixOptions
from verl_kernel.remix.routing import Routing, Run, Selection

__all__ = [
    "FEED_FORWARD",
    "ReMixLinear",
    "ReMixLoss",
    "ReMixOptions",
    "Routing",
    "Run",
    "Selection",
    "apply_remix",
    "common_choice",
    "export",
    "leave_one_out",
    "prompt_choice",
    "remix_loss",
]
