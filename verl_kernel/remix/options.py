# SPDX-License-Identifier: Apache-2.0
"""What a ReMix module is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup


@dataclass(frozen=True)
class ReMixOptions(OptionGroup):
    """Options of the node `remix`: how many LoRAs, how many of them a row uses, and who decides.

    Raises:
        ConfigError: a value is out of range, or more LoRAs are chosen than there are.
    """

    NODE = "remix"

    loras: Annotated[int, Interval(ge=1)] = 8
    """LoRAs beside every target layer; n in the paper."""
    chosen: Annotated[int, Interval(ge=1)] = 2
    """LoRAs of a layer that one row of the batch uses; k in the paper."""
    rank: Annotated[int, Interval(ge=1)] = 8
    """Rank of one LoRA; r in the paper."""
    scale: Literal["lora", "rslora"] = "lora"
    """`lora`: omega is 2/(k r); `rslora`: omega is 2/sqrt(k r)."""
    router: Literal["layer", "prompt"] = "prompt"
    """`layer`: the router reads the layer's own input (the paper). `prompt`: it reads a key of the prompt (ours)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chosen > self.loras:
            raise ConfigError(
                f"remix.chosen is {self.chosen}; there are only {self.loras} LoRAs to choose from (remix.loras)"
            )

    @property
    def omega(self) -> float:
        """The constant weight of every chosen LoRA (arXiv 2603.10160)."""
        ranks = self.chosen * self.rank
        return 2 / (ranks if self.scale == "lora" else math.sqrt(ranks))
