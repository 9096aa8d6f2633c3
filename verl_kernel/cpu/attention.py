# SPDX-License-Identifier: Apache-2.0
"""Lets transformers' attention `sdpa` make no mask, for causal models and rows that are padded on their right.

verl's engines pad so, and in a causal model no token reads what stands on its right: a mask changes nothing but the
padding's own outputs, which nobody uses. With a mask torch computes all pairs of tokens on a CPU, without one half of
them. verl imports this module where `model.external_lib` names it. The name stays `sdpa`, since a checkpoint holds it
and must be read where this package is not.
"""

from __future__ import annotations

from typing import Any

from transformers import AttentionMaskInterface

NAME = "sdpa"


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Stand in for a function that makes masks."""


AttentionMaskInterface.register(NAME, _no_mask)
