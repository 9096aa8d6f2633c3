# SPDX-License-Identifier: Apache-2.0
"""Which LoRAs each row uses during one forward pass, decided once per layer and kept until the pass ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch

from verl_kernel.errors import ConfigError, DataError
from verl_kernel.remix.options import ReMixOptions
from verl_kernel.remix.subsets import draw, log_probability, membership, top

if TYPE_CHECKING:
    from verl_kernel.remix.linear import ReMixLinear

Mode = Literal["sample", "topk", "uniform", "fixed"]
"""`sample` draws from the router, `topk` takes its largest, `uniform` ignores it, `fixed` takes what it is told."""
Choice = Mapping[str, Sequence[int]]
"""For the name of every layer the LoRAs that it uses."""


@dataclass
class Selection:
    """What one layer uses: `order` (B, k) in the order drawn, `gates` (B, n) bool; its router read `routed` (B, D)."""

    order: torch.Tensor
    gates: torch.Tensor
    routed: torch.Tensor | None


@dataclass
class Run:
    """One forward pass: how it chooses, and what each layer has chosen so far.

    `prompt` is (B, T) bool, true on the prompt's tokens; `keys` is (B, D), what routers of the kind `prompt` read.
    """

    mode: Mode
    prompt: torch.Tensor | None = None
    keys: torch.Tensor | None = None
    choice: Choice | None = None
    generator: torch.Generator | None = None
    selections: dict[str, Selection] = field(default_factory=dict)


class Routing:
    """The layers of one model that share their choice of LoRAs, and the forward pass in which they are."""

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
        """Let the model be called: every layer chooses at its first call, and later calls find the same choice.

        So activation checkpointing recomputes what was computed, as long as the backward pass is inside, and
        generation with a cache keeps the LoRAs that the prompt chose.

        Args:
            mode: see `Mode`.
            prompt: (B, T) bool, true on the prompt's tokens; routers of the kind `layer` average their input over them.
            keys: (B, D) float, what routers of the kind `prompt` read.
            choice: for the mode `fixed`, the LoRAs of every layer, the same for all rows.
            generator: source of the draws; torch's own where None.

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
        """The layer's choice in this pass, (B, n) bool, made now where this is its first call.

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
        """Log-probability of all that a pass chose, (B,), summed over layers; differentiable in the routers only."""
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
        """What routers read and this pass does not have, in words; empty where nothing is missing."""
        if self.options.router == "prompt":
            return "keys with one line" if run.keys is None or len(run.keys) != len(x) else ""
        if x.dim() == 2 or (run.prompt is not None and run.prompt.shape == x.shape[:2]):
            return ""
        return "prompt, a mask with one line"

    def _read(self, run: Run, x: torch.Tensor) -> torch.Tensor:
        """What a router reads of each row, (B, D), without a gradient: log-probabilities need none but the router's."""
        if self.options.router == "prompt":
            assert run.keys is not None
            return run.keys
        if x.dim() == 2:
            return x.detach()
        assert run.prompt is not None
        weights = run.prompt.to(x.dtype) / run.prompt.sum(1, keepdim=True).clamp(min=1)
        return torch.einsum("bt,btd->bd", weights, x.detach())
