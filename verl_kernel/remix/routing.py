# SPDX-License-Identifier: Apache-2.0
"""Decides which LoRAs each row uses during a forward pass, once per layer, and keeps the choice until the pass ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch

from verl_kernel.errors import ConfigError, DataError
from verl_kernel.remix.linear import ReMixLinear
from verl_kernel.remix.options import ReMixOptions
from verl_kernel.remix.subsets import draw, log_probability, membership, top

Mode = Literal["sample", "topk", "uniform", "fixed"]
"""`sample` draws from the router, `topk` takes its largest, `uniform` ignores it, `fixed` uses a given choice."""
Choice = Mapping[str, Sequence[int]]
"""Maps the name of every layer to the LoRAs that it uses."""


@dataclass
class Selection:
    """What one layer uses: `order` (B, k) in the order drawn, `gates` (B, n) bool; its router read `routed` (B, D)."""

    order: torch.Tensor
    gates: torch.Tensor
    routed: torch.Tensor | None


@dataclass
class Run:
    """One forward pass: its mode, and the choices of its layers so far.

    `prompt` is (B, T) bool, true on the prompt's tokens; `keys` is (B, D), what routers of the kind `prompt` read.
    """

    mode: Mode
    prompt: torch.Tensor | None = None
    keys: torch.Tensor | None = None
    choice: Choice | None = None
    generator: torch.Generator | None = None
    selections: dict[str, Selection] = field(default_factory=dict)


class Routing:
    """The layers of one model that share their choice of LoRAs, and the current forward pass."""

    def __init__(self, options: ReMixOptions) -> None:
        self.options = options
        self.layers: dict[str, ReMixLinear] = {}
        self._run: Run | None = None

    @contextmanager
    def run(
        self,
        mode: Mode,
        prompt: torch.Tensor | None = None,
        keys: torch.Tensor | None = None,
        choice: Choice | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[Run]:
        """Open a pass for calls of the model: every layer chooses at its first call, and later calls reuse the choice.

        So activation checkpointing recomputes the same values, if the backward pass is inside, and generation with a
        cache keeps the LoRAs that were chosen for the prompt.

        Args:
            mode: see `Mode`.
            prompt: (B, T) bool, true on the prompt's tokens; routers of the kind `layer` average their input over them.
            keys: (B, D) float, what routers of the kind `prompt` read.
            choice: for the mode `fixed`, the LoRAs of every layer, the same for all rows.
            generator: source of the draws; torch's default if None.

        Raises:
            ConfigError: a pass of this model is open already.
        """
        if self._run is not None:
            raise ConfigError("a ReMix pass is inside another of the same model; close the outer one first")
        self._run = Run(mode, prompt, keys, choice, generator)
        try:
            yield self._run
        finally:
            self._run = None

    def gates(self, layer: ReMixLinear, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's choice in this pass, (B, n) bool; it is made at the layer's first call.

        Raises:
            ConfigError: no pass is open.
            DataError: the rows differ from those that chose, or what the router reads is missing.
        """
        if self._run is None:
            raise ConfigError("a ReMix model was called outside of Routing.run, which says how LoRAs are chosen")
        found = self._run.selections.get(layer.name)
        if found is None:
            found = self._run.selections[layer.name] = self._select(self._run, layer, x)
        if len(found.gates) != len(x):
            raise DataError(
                f"{layer.name} chose for {len(found.gates)} rows and is called with {len(x)}: open a new pass"
            )
        return found.gates

    def log_probability(self, run: Run) -> torch.Tensor:
        """Return a pass's log-probability of its choices, (B,), summed over layers; only the routers get gradients."""
        parts = []
        for name, selection in run.selections.items():
            if selection.routed is None:
                raise DataError(f"{name} chose without its router, which had nothing to read")
            logits = torch.nn.functional.linear(selection.routed, self.layers[name].router)
            parts.append(log_probability(logits, selection.order))
        return torch.stack(parts).sum(0)

    @torch.no_grad()
    def _select(self, run: Run, layer: ReMixLinear, x: torch.Tensor) -> Selection:
        size, router = self.options.chosen, layer.router
        missing = self._missing(run, x)
        if missing and run.mode in ("sample", "topk"):
            raise DataError(f"a router of the kind `{self.options.router}` needs {missing} for each row of the batch")
        routed = None if missing else self._read(run, x).to(router.dtype)
        logits = router.new_zeros(len(x), len(router)) if routed is None else torch.nn.functional.linear(routed, router)
        if run.mode == "fixed":
            order = torch.tensor((run.choice or {})[layer.name], device=x.device).expand(len(x), -1)
        elif run.mode == "topk":
            order = top(logits, size)
        else:
            order = draw(torch.zeros_like(logits) if run.mode == "uniform" else logits, size, run.generator)
        return Selection(order, membership(order, self.options.loras), routed)

    def _missing(self, run: Run, x: torch.Tensor) -> str:
        """Return which inputs of the routers this pass lacks, in words; empty if none."""
        if self.options.router == "prompt":
            return "keys with one line" if run.keys is None or len(run.keys) != len(x) else ""
        if x.dim() == 2 or (run.prompt is not None and run.prompt.shape == x.shape[:2]):
            return ""
        return "prompt, a mask with one line"

    def _read(self, run: Run, x: torch.Tensor) -> torch.Tensor:
        """Return a router's input for each row, (B, D), without a gradient: only the router itself needs one."""
        if self.options.router == "prompt":
            assert run.keys is not None
            return run.keys
        if x.dim() == 2:
            return x.detach()
        assert run.prompt is not None
        weights = run.prompt.to(x.dtype) / run.prompt.sum(1, keepdim=True).clamp(min=1)
        return torch.einsum("bt,btd->bd", weights, x.detach())
