# SPDX-License-Identifier: Apache-2.0
"""Whether mismatch rejection would take staleness for mismatch.

verl computes log pi_train once, by the weights of the step that trains on a sample. Where those are newer than the
weights that generated it, pi_train / pi_rollout holds the updates in between, and a band as narrow as MRS's rejects
rows for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import NODE as LOSS_NODE
from verl_kernel.verl_keys import find, read

CORRECTION = "algorithm.rollout_correction"
SAMPLER = "trainer.v1.sampler.sampler_kwargs"
NARROW = 0.01
"""Distance from 1 within which a bound on a mean ratio rejects rows for an update alone."""


def check_staleness(config: DictConfig) -> None:
    """Samples of older weights are not judged by a narrow band, unless that is asked for.

    Raises:
        ConfigError: they would be; the message names the preset to use.
    """
    cause = cause_of_staleness(config)
    if cause is None or find(config, f"{SAMPLER}.allow_narrow_band"):
        return
    for key, bound in (*_row_bounds(config), *_turn_bounds(config)):
        if abs(bound - 1) < NARROW:
            raise ConfigError(
                f"{key} holds the bound {bound:.6g} and {cause}, so samples of older weights are trained on and every "
                "update would count as mismatch: set mismatch=stale_tis (or stale_clip), or "
                f"{SAMPLER}.allow_narrow_band=true to reject them nevertheless"
            )


def cause_of_staleness(config: DictConfig) -> str | None:
    """The switch by which samples may be older than the weights they train, in words; None where they cannot be."""
    mode = read(config, "trainer.v1.trainer_mode")
    if find(config, f"{SAMPLER}.group_carry_over"):
        return f"{SAMPLER}.group_carry_over is true"
    ahead = find(config, f"trainer.v1.{mode}.num_warmup_batches")
    if mode != "sync" and ahead:
        return f"trainer.v1.{mode}.num_warmup_batches is {ahead}"
    return None


def _row_bounds(config: DictConfig) -> Iterator[tuple[str, float]]:
    """Bounds of verl's rules on mean ratios."""
    rule = find(config, CORRECTION) or {}
    names = [name.strip() for name in str(rule.get("rollout_rs") or "").split(",")]
    specs = [spec.strip() for spec in str(rule.get("rollout_rs_threshold")).split(",")]
    # verl shares a single threshold among all rules.
    for name, spec in zip(names, specs * len(names) if len(specs) == 1 else specs, strict=False):
        if name == "seq_mean_k1":
            yield from ((f"{CORRECTION}.rollout_rs_threshold", float(bound)) for bound in spec.split("_"))


def _turn_bounds(config: DictConfig) -> Iterator[tuple[str, float]]:
    """Bounds of `turn_corrected`."""
    node = find(config, LOSS_NODE) or {}
    yield from ((f"{LOSS_NODE}.{key}", float(node[key])) for key in ("low", "high") if node.get(key) is not None)
