# SPDX-License-Identifier: Apache-2.0
"""Linear layers with several parallel LoRAs: which of them each row uses in a pass, and how a model gets them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.functional import linear

from verl_kernel.errors import ConfigError, DataError
from verl_kernel.remix.options import ReMixOptions

Mode = Literal["sample", "topk", "uniform", "fixed"]
"""`sample` draws from the router, `topk` takes its largest, `uniform` ignores it, `fixed` uses a given choice."""
Choice = Mapping[str, Sequence[int]]
"""Maps the name of every layer to the LoRAs that it uses."""
FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
"""The feed-forward layers of Llama, Qwen and similar models: the paper's targets."""


def draw(logits: torch.Tensor, size: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Draw ordered subsets without replacement, each element from the softmax over the remaining ones.

    The `size` largest of logits plus Gumbel noise, in order, have that distribution (Plackett-Luce).

    Args:
        logits: (..., n) float.
        size: elements of a subset.
        generator: source of the noise, which is made on its device; torch's default if None.

    Returns:
        (..., size) long, indices in the order drawn.
    """
    device = logits.device if generator is None else generator.device
    noise = torch.empty(logits.shape, dtype=torch.float64, device=device).exponential_(generator=generator)
    # Minus the logarithm of an exponential number is Gumbel noise.
    return top(logits - noise.to(logits.device).log(), size)


def top(logits: torch.Tensor, size: int) -> torch.Tensor:
    """Return the indices of the `size` largest logits, (..., size) long; the largest first, equal ones by index."""
    return logits.sort(dim=-1, descending=True, stable=True).indices[..., :size]


def log_probability(logits: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return log P(`draw` returns `order`): the sum over j of log q_j - log(1 - q of those drawn before j).

    Args:
        logits: (..., n) float; gradients flow into them.
        order: (..., size) long, without repetition.

    Returns:
        (...) float.
    """
    total = torch.zeros_like(logits[..., 0])
    remaining = logits
    for position in range(order.shape[-1]):
        index = order[..., position : position + 1]
        total = total + (remaining.gather(-1, index).squeeze(-1) - remaining.logsumexp(-1))
        remaining = remaining.scatter(-1, index, -torch.inf)
    return total


def membership(order: torch.Tensor, count: int) -> torch.Tensor:
    """Return the subset as (..., count) bool: which of `count` elements it holds."""
    return torch.zeros(*order.shape[:-1], count, dtype=torch.bool, device=order.device).scatter(-1, order, True)


@dataclass
class Selection:
    """What one layer uses: `order` (B, k) in the order drawn, `gates` (B, n) bool; its router read `routed` (B, D)."""

    order: torch.Tensor
    gates: torch.Tensor
    routed: torch.Tensor | None


@dataclass
class ReMixPass:
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
        self._run: ReMixPass | None = None

    @contextmanager
    def run(
        self,
        mode: Mode,
        prompt: torch.Tensor | None = None,
        keys: torch.Tensor | None = None,
        choice: Choice | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[ReMixPass]:
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
        self._run = ReMixPass(mode, prompt, keys, choice, generator)
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
        selection = self._run.selections.get(layer.name)
        if selection is None:
            selection = self._run.selections[layer.name] = self._select(self._run, layer, x)
        if len(selection.gates) != len(x):
            raise DataError(
                f"{layer.name} chose for {len(selection.gates)} rows and is called with {len(x)}: open a new pass"
            )
        return selection.gates

    def log_probability(self, run: ReMixPass) -> torch.Tensor:
        """Return a pass's log-probability of its choices, (B,), summed over layers; only the routers get gradients."""
        parts = []
        for name, selection in run.selections.items():
            if selection.routed is None:
                raise DataError(f"{name} chose without its router, which had nothing to read")
            logits = torch.nn.functional.linear(selection.routed, self.layers[name].router)
            parts.append(log_probability(logits, selection.order))
        return torch.stack(parts).sum(0)

    @torch.no_grad()
    def _select(self, run: ReMixPass, layer: ReMixLinear, x: torch.Tensor) -> Selection:
        size, router = self.options.chosen, layer.router
        missing = self._missing_inputs(run, x)
        if missing and run.mode in ("sample", "topk"):
            raise DataError(f"a router of the kind `{self.options.router}` needs {missing} for each row of the batch")
        routed = None if missing else self._router_input(run, x).to(router.dtype)
        logits = router.new_zeros(len(x), len(router)) if routed is None else torch.nn.functional.linear(routed, router)
        if run.mode == "fixed":
            order = torch.tensor((run.choice or {})[layer.name], device=x.device).expand(len(x), -1)
        elif run.mode == "topk":
            order = top(logits, size)
        else:
            order = draw(torch.zeros_like(logits) if run.mode == "uniform" else logits, size, run.generator)
        return Selection(order, membership(order, self.options.loras), routed)

    def _missing_inputs(self, run: ReMixPass, x: torch.Tensor) -> str:
        """Return which inputs of the routers this pass lacks, in words; empty if none."""
        if self.options.router == "prompt":
            return "keys with one line" if run.keys is None or len(run.keys) != len(x) else ""
        if x.dim() == 2 or (run.prompt is not None and run.prompt.shape == x.shape[:2]):
            return ""
        return "prompt, a mask with one line"

    def _router_input(self, run: ReMixPass, x: torch.Tensor) -> torch.Tensor:
        """Return a router's input for each row, (B, D), without a gradient: only the router itself needs one."""
        if self.options.router == "prompt":
            assert run.keys is not None
            return run.keys
        if x.dim() == 2:
            return x.detach()
        assert run.prompt is not None
        weights = run.prompt.to(x.dtype) / run.prompt.sum(1, keepdim=True).clamp(min=1)
        return torch.einsum("bt,btd->bd", weights, x.detach())


class ReMixLinear(nn.Module):
    """y = W x + omega * the sum of B_i A_i x over the chosen LoRAs (arXiv 2603.10160).

    `lora_a` (n r, in) and `lora_b` (out, n r) hold all LoRAs, `router` (n, D) is the paper's P. B starts at zero,
    so that the layer first acts like its base; P starts at zero, so that all subsets are first equally likely.
    """

    def __init__(self, name: str, base: nn.Linear, routing: Routing, key_width: int) -> None:
        super().__init__()
        options = routing.options
        self.name, self.base, self._routing = name, base, routing
        width, read = options.loras * options.rank, key_width if options.router == "prompt" else base.in_features
        # float32 or more, as in PEFT: half precision would lose small updates, and blur sums over all layers.
        kind: dict[str, Any] = {
            "dtype": torch.promote_types(base.weight.dtype, torch.float32),
            "device": base.weight.device,
        }
        self.lora_a = nn.Parameter(torch.empty(width, base.in_features, **kind))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, width, **kind))
        self.router = nn.Parameter(torch.zeros(options.loras, read, **kind))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output for x, (B, ..., in); row b uses the LoRAs that it chose in this pass."""
        options = self._routing.options
        gates = self._routing.gates(self, x).repeat_interleave(options.rank, dim=1)
        gates = gates.view(len(x), *[1] * (x.dim() - 2), -1)
        out: torch.Tensor = self.base(x)
        update = linear(linear(x.to(self.lora_a.dtype), self.lora_a) * gates, self.lora_b)
        return out + (options.omega * update).to(out.dtype)


def apply_remix(
    model: nn.Module, options: ReMixOptions, targets: Sequence[str] = FEED_FORWARD, key_width: int = 1
) -> Routing:
    """Freeze a model and add LoRAs, in place, to every linear layer with a name in `targets`.

    Args:
        model: model whose linear layers are replaced.
        options: number, rank and scale of the LoRAs, and what the routers read.
        targets: last parts of the names of the layers.
        key_width: width of a prompt's key, if routers read it.

    Returns:
        The routing that the layers share; the model can be called inside its `run`.

    Raises:
        ConfigError: a target names no linear layer.
    """
    targeted = {name: module for name, module in model.named_modules() if name.rpartition(".")[2] in targets}
    for target in targets:
        of_target = [module for name, module in targeted.items() if name.rpartition(".")[2] == target]
        if not of_target or not all(isinstance(module, nn.Linear) for module in of_target):
            raise ConfigError(
                f"remix.targets names {target!r}, which is no linear layer of this model: name those that are"
            )
    model.requires_grad_(False)
    routing = Routing(options)
    for name, module in targeted.items():
        assert isinstance(module, nn.Linear)
        layer = routing.layers[name] = ReMixLinear(name, module, routing, key_width)
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, layer)
    return routing
