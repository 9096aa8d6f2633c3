# SPDX-License-Identifier: Apache-2.0
"""What a ReMix module is made of, and how it is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup

_Rate = Annotated[float, Interval(gt=0, lt=math.inf)]
_Count = Annotated[int, Interval(ge=1)]
NO_ROWS = "remix.tuning.held_out is 0; a router of the kind `layer` needs rows to see what it chooses"
"""No adapter could be chosen after a training."""


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
    router: Literal["layer", "prompt"] = "layer"
    """`layer`: the router reads the layer's own input (the paper). `prompt`: it reads a key of the prompt (ours), so
    that an adapter is exact."""

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


@dataclass(frozen=True)
class TuningOptions(OptionGroup):
    """How the SFT stage trains.

    Raises:
        ConfigError: a value is out of range, or a batch does not consist of whole micro-batches.
    """

    NODE = "remix.tuning"

    steps: _Count = 200
    batch_size: _Count = 8
    """Rows of an optimizer step."""
    micro_batch_size: _Count = 8
    """Rows of a forward pass."""
    selections: Annotated[int, Interval(ge=2)] = 4
    """Independent selections of each step; M in the paper."""
    learning_rate: _Rate = 1e-3
    """Of the LoRAs; Adam, without decay."""
    router_learning_rate: _Rate = 2e-2
    """Of the routers."""
    seed: Annotated[int, Interval(ge=0)] = 0
    """Of the LoRAs' first values, the order of rows and the selections."""
    held_out: Annotated[int, Interval(ge=0)] = 64
    """Rows at the end of the data that are not trained on: their loss is measured before and after."""
    save_every: _Count = 50
    """Steps between two states from which an interrupted run goes on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size % self.micro_batch_size:
            raise ConfigError(
                f"remix.tuning.batch_size is {self.batch_size}; it must be a multiple of micro_batch_size, "
                f"{self.micro_batch_size}"
            )
