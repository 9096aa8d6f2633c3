# SPDX-License-Identifier: Apache-2.0
"""Options of the sampler: PRS and the group filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup

NODE = "trainer.v1.sampler.sampler_kwargs"
GROUP_STD = 1e-3
"""Standard deviation of a turn's rewards within a prompt up to which they are the same."""


@dataclass(frozen=True)
class PRSOptions(OptionGroup):
    """Options of the sampler, read from `trainer.v1.sampler.sampler_kwargs`.

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names the full key.
    """

    NODE = NODE
    CONSTANTS: ClassVar[Mapping[str, float]] = {"group_std": GROUP_STD}

    enabled: bool = True
    """Whether turns are rejected (profiling-based rejection sampling): a correct one is kept with probability
    clip((coverage - threshold) / width, 0, 1). The kernel metrics are reported either way."""
    level: Literal["turn", "trajectory"] = "turn"
    """`turn`: each turn has its own draw; `trajectory`: all turns of a trajectory share one."""
    key: Literal["time_coverage", "number_coverage"] = "time_coverage"
    """Which coverage decides."""
    threshold: Annotated[float, Interval(ge=0, le=1)] = 0.3
    """Coverage at and below which a correct turn is rejected for certain."""
    width: Annotated[float, Interval(ge=0, le=1)] = 0.1
    """Coverage above the threshold over which the probability grows to 1; 0 is a hard cut."""
    speedup_threshold: Annotated[float, Interval(ge=0, le=1e6)] | None = None
    """Sure speedup (the lower end of its interval) from which a turn is kept whatever its coverage; null: none."""
    seed: int = 0
    """Seed of the draws."""
    group_filter: Literal["none", "drop", "refill"] = "none"
    """What becomes of prompts whose rollouts all earned the same in every turn: `none` keeps them, `drop` takes them
    out of the batch, `refill` replaces them (in sync with data.gen_batch_size=1)."""
    group_spread: Literal["turns", "last_turn"] = "turns"
    """Which rewards of a prompt's rollouts must differ: those of some turn (`turns`), or of the `last_turn`."""
    group_refills: Annotated[int, Interval(ge=1)] = 3
    """Prompts that `refill` may replace in a step, in batches; later ones stay, so that a step ends."""
    group_carry_over: bool = False
    """Whether prompts that `refill` made beyond the batch are kept for the next step, one update old (in sync)."""
    least_programs: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Share of the first validation's answers that must hold a program, or the run ends before it trains; 0 lets every
    run go on, and lets a model that thinks have few tokens."""
    allow_narrow_band: bool = False
    """Whether a mismatch band within 1 % of 1 may judge samples of older weights; read before the start."""
    poll_interval_s: Annotated[float, Interval(ge=0.01, le=60)] = 2.0
    """How long the trainer sleeps between two looks for finished rollouts."""
    record_dir: str | None = None
    """Folder for the sampled trajectories with every turn's verdict, a file per step; null writes nothing."""
    best_kernels: str | None = None
    """File for the best kernels of the run, a line for each that beats its task's earlier ones; null writes nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width > 0 and self.threshold >= 1:
            raise ConfigError(
                f"{NODE}.threshold is {self.threshold} and width {self.width}, which rejects every correct kernel: "
                "lower the threshold, or set width=0 to keep kernels of full coverage"
            )
