# SPDX-License-Identifier: Apache-2.0
"""Options of the sampler: PRS and the group filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from verl_kernel.errors import ConfigError

NODE = "trainer.v1.sampler.sampler_kwargs"
_CHOICES = {
    "key": ("time_coverage", "number_coverage"),
    "level": ("turn", "trajectory"),
    "group_filter": ("none", "drop", "refill"),
    "group_spread": ("turns", "last_turn"),
}
_RANGES = (
    ("threshold", 0.0, 1.0),
    ("width", 0.0, 1.0),
    ("speedup_threshold", 0.0, 1e6),
    ("group_std", 0.0, 1e6),
    ("poll_interval_s", 0.01, 60.0),
)


@dataclass(frozen=True)
class PRSOptions:
    """Options of the sampler, read from `trainer.v1.sampler.sampler_kwargs`.

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names the full key.
    """

    enabled: bool = True
    """Whether turns are rejected; the kernel metrics are reported either way."""
    level: str = "turn"
    """`turn`: each turn has its own draw; `trajectory`: all turns of a trajectory share one."""
    key: str = "time_coverage"
    """`time_coverage` or `number_coverage`."""
    threshold: float = 0.3
    """Coverage at and below which a correct turn is rejected for certain."""
    width: float = 0.1
    """Coverage above the threshold over which the probability grows to 1; 0 is a hard cut."""
    speedup_threshold: float | None = None
    """Speedup from which a turn is kept whatever its coverage; null knows no such speedup."""
    seed: int = 0
    group_filter: str = "none"
    """What becomes of prompts whose rollouts all earned the same: `none`, `drop`, or `refill` with other prompts."""
    group_spread: str = "turns"
    """Which rewards of a prompt's rollouts must differ: those of some turn (`turns`), or of the `last_turn`."""
    group_std: float = 1e-3
    """Standard deviation of a turn's rewards within a prompt up to which they are the same."""
    group_refills: int = 3
    """Prompts that `refill` may replace in a step, in batches; later ones stay, so that a step ends."""
    group_carry_over: bool = False
    """Whether prompts that `refill` made beyond the batch are kept for the next step instead of thrown away."""
    allow_narrow_band: bool = False
    """Whether a mismatch band within 1 % of 1 may judge samples of older weights; read before the start."""
    poll_interval_s: float = 2.0
    """How long the trainer sleeps between two looks for finished rollouts."""
    record_dir: str | None = None
    """Folder for `sample_log`, a file per step; nothing is written when null."""
    best_kernels: str | None = None
    """File for `kernel_log`; nothing is written when null."""

    def __post_init__(self) -> None:
        for key in ("enabled", "group_carry_over", "allow_narrow_band"):
            if not isinstance(getattr(self, key), bool):
                raise ConfigError(f"{NODE}.{key} is {getattr(self, key)!r}; it must be true or false")
        for key, allowed in _CHOICES.items():
            if getattr(self, key) not in allowed:
                raise ConfigError(f"{NODE}.{key} is {getattr(self, key)!r}; it must be one of {', '.join(allowed)}")
        for key, low, high in _RANGES:
            self._check_number(key, low, high)
        for key, least in (("seed", None), ("group_refills", 1)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
                more = "" if least is None else f" of at least {least}"
                raise ConfigError(f"{NODE}.{key} is {value!r}; it must be a whole number{more}")
        if self.width > 0 and self.threshold >= 1:
            raise ConfigError(
                f"{NODE}.threshold is {self.threshold} and width {self.width}, which rejects every correct kernel: "
                "lower the threshold, or set width=0 to keep kernels of full coverage"
            )

    def _check_number(self, key: str, low: float, high: float) -> None:
        value = getattr(self, key)
        if value is None and key == "speedup_threshold":
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ConfigError(f"{NODE}.{key} is {value!r}; it must be a number between {low} and {high}")

    @classmethod
    def from_node(cls, node: Mapping[str, Any] | None) -> PRSOptions:
        """Read the node of a composed configuration, refusing keys it does not know."""
        allowed = [field.name for field in fields(cls)]
        for key in node or {}:
            if key not in allowed:
                raise ConfigError(f"{NODE}.{key} is unknown; the keys are {', '.join(allowed)}")
        return cls(**dict(node or {}))
