# SPDX-License-Identifier: Apache-2.0
"""ReMix on planted clusters: a linear layer whose right update depends on the cluster that the input comes from.

Four parts of rank 2 are hidden; each of six clusters needs the sum of two of them, so that two LoRAs of rank 2 out of
four, chosen by the input, can be exact, and no single LoRA can. Compared: ReMix, the same without training its router,
two soft routers (written here only), single LoRAs, and sweeps over k and M. The measure is the mean squared error on
fresh inputs as a share of that without any update. Writes data/methods/remix_clusters.json and remix_clusters.svg
(extra `plot`). Usage: OMP_NUM_THREADS=1 python benchmarks/methods/remix_clusters.py [folder] [steps] [seeds]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from verl_kernel.remix.layers import Routing, apply_remix
from verl_kernel.remix.loss import remix_loss
from verl_kernel.remix.options import ReMixOptions
from verl_kernel.reporting.plots import drawing

OUT = Path(__file__).parents[2] / "data" / "methods"
STEPS, SEEDS, BATCH, FRESH, EVERY = 500, 5, 64, 1000, 25
WIDTH, PARTS, RANK = 16, 4, 2
PAIRS = list(combinations(range(PARTS), 2))
RATE, ROUTER_RATE = 1e-2, 3e-2


class Task:
    """Inputs around six centres, and for each cluster the layer that it asks for."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.base = self._normal(WIDTH, WIDTH) / WIDTH**0.5
        parts = self._normal(PARTS, WIDTH, RANK) @ self._normal(PARTS, RANK, WIDTH) / WIDTH**0.5
        self.wanted = torch.stack([self.base + parts[a] + parts[b] for a, b in PAIRS])
        self.centres = 4 * torch.linalg.qr(self._normal(WIDTH, WIDTH)).Q[: len(PAIRS)]

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and right answers, (count, WIDTH) each."""
        cluster = torch.randint(len(PAIRS), (count,), generator=self.generator)
        x = self.centres[cluster] + self._normal(count, WIDTH)
        return x, torch.einsum("boi,bi->bo", self.wanted[cluster], x)

    def layer(self) -> nn.Sequential:
        """The layer without an update."""
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False))
        model[0].weight.data.copy_(self.base)
        return model


class Soft(nn.Module):
    """LoRAs weighted by a softmax, over all of them or renormalised over the largest two, as mixtures of LoRAs do.

    Before the first step all are equally large, so that the largest two are all four.
    """

    def __init__(self, base: nn.Linear, loras: int, largest: int, total: float) -> None:
        super().__init__()
        self.base, self.loras, self.largest, self.total = base.requires_grad_(False), loras, largest, total
        self.lora_a = nn.Parameter(torch.empty(loras * RANK, WIDTH))
        self.lora_b = nn.Parameter(torch.zeros(WIDTH, loras * RANK))
        self.router = nn.Parameter(torch.zeros(loras, WIDTH))
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """(B, loras), summing to one."""
        logits = linear(x, self.router)
        least = logits.topk(self.largest).values[:, -1:]
        return logits.masked_fill(logits < least, -torch.inf).softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Answer for x, (B, WIDTH)."""
        weights = self.weights(x).repeat_interleave(RANK, dim=1) * self.total
        return self.base(x) + linear(linear(x, self.lora_a) * weights, self.lora_b)


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    kind: str
    loras: int = PARTS
    chosen: int = 2
    rank: int = RANK
    selections: int = 4

    def options(self) -> ReMixOptions:
        """Of the arms that are ReMix, or a LoRA as a ReMix of one."""
        return ReMixOptions(loras=self.loras, chosen=self.chosen, rank=self.rank, router="layer")


ARMS = {
    "remix": Arm("remix"),
    "no router training": Arm("uniform"),
    "soft, all": Arm("soft"),
    "soft, largest two": Arm("soft_top"),
    **{f"lora rank {rank}": Arm("uniform", 1, 1, rank, 1) for rank in (2, 4, 6, 8)},
    **{f"remix k={k}": Arm("remix", chosen=k) for k in (1, 3, 4)},
    **{f"remix M={m}": Arm("remix", selections=m) for m in (2, 8)},
}


def effective(weights: torch.Tensor) -> float:
    """The effective number of LoRAs, 1 / sum of squared weights that sum to one, averaged over rows."""
    return (1 / weights.square().sum(-1)).mean().item()


def train(arm: Arm, seed: int, steps: int) -> dict[str, Any]:
    """Train one arm and measure it every `EVERY` steps."""
    torch.manual_seed(seed)
    task = Task(seed)
    fresh, answers = task.draw(FRESH)
    model = task.layer()
    without = _error(model(fresh), answers)
    ours = _remix(arm, model, seed) if arm.kind in ("remix", "uniform") else _soft(arm, model)
    step, measure, parameters = ours
    routers = [weight for name, weight in parameters if name.endswith("router")]
    loras = [weight for name, weight in parameters if not name.endswith("router")]
    optimizer = torch.optim.Adam([{"params": loras}, {"params": routers, "lr": ROUTER_RATE}], lr=RATE)
    curve = []
    for number in range(steps + 1):
        if number % EVERY == 0:
            with torch.no_grad():
                found = measure(fresh, answers)
            curve.append({"step": number, **found, "error": found["error"] / without})
            if "sampled_error" in found:
                curve[-1]["sampled_error"] /= without
        optimizer.zero_grad()
        step(*task.draw(BATCH))
        optimizer.step()
    return {"seed": seed, "curve": curve}


Step = Callable[[torch.Tensor, torch.Tensor], None]
Measure = Callable[[torch.Tensor, torch.Tensor], dict[str, float]]
Parts = tuple[Step, Measure, list[tuple[str, nn.Parameter]]]


def _remix(arm: Arm, model: nn.Sequential, seed: int) -> Parts:
    routing = apply_remix(model, arm.options(), targets=("0",))
    generator = torch.Generator().manual_seed(seed)
    mode: Any = "sample" if arm.kind == "remix" else "uniform"

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        def rows() -> torch.Tensor:
            return (model(x) - y).square().mean(1) / len(x)

        remix_loss(routing, rows, arm.selections, generator=generator, mode=mode).loss.backward()

    def measure(x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
        found = {}
        for name, how in (("error", "topk" if mode == "sample" else mode), ("sampled_error", mode)):
            with routing.run(how, generator=generator) as run:
                found[name] = _error(model(x), y)
            if name == "error":
                gates = run.selections["0"].gates.float() / arm.chosen
        return {**found, "effective": effective(gates), "router_effective": _router_effective(routing, x)}

    return step, measure, [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def _router_effective(routing: Routing, x: torch.Tensor) -> float:
    return effective(linear(x, routing.layers["0"].router).softmax(-1))


def _soft(arm: Arm, model: nn.Sequential) -> Parts:
    total = arm.chosen * arm.options().omega
    soft = Soft(model[0], arm.loras, arm.chosen if arm.kind == "soft_top" else arm.loras, total)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        (soft(x) - y).square().mean().backward()

    def measure(x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
        return {"error": _error(soft(x), y), "effective": effective(soft.weights(x))}

    return step, measure, [(name, weight) for name, weight in soft.named_parameters() if weight.requires_grad]


def _error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return (found - wanted).square().mean().item()


def at_initialisation(draws: int = 2000) -> dict[str, float]:
    """Theorem 1's case: 8 LoRAs, a Gaussian router of deviation 1, inputs of 1024 signs; how soft is its softmax?"""
    generator = torch.Generator().manual_seed(0)
    supports = torch.empty(draws)
    for i in range(draws):
        signs = torch.randint(2, (1024,), generator=generator).float() * 2 - 1
        weights = (torch.randn(8, 1024, generator=generator) @ signs).softmax(-1)
        supports[i] = 1 / weights.square().sum()
    return {"median": supports.median().item(), "share_at_most_two": (supports <= 2).float().mean().item()}


def main(out: Path, steps: int, seeds: int) -> None:
    """Train all arms over all seeds, print the last errors, write data and figure; all are written after each seed."""
    arms: dict[str, list[dict[str, Any]]] = {name: [] for name in ARMS}
    theorem = at_initialisation()
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for name, arm in ARMS.items():
            arms[name].append(train(arm, seed, steps))
        data = _rounded({"steps": steps, "theorem_1": theorem, "arms": arms})
        (out / "remix_clusters.json").write_text(json.dumps(data) + "\n", encoding="utf-8")
        _draw(arms, out / "remix_clusters.svg")
    for name, runs in arms.items():
        print(f"{name:20}", *(f"{key} {_last(runs, key)}" for key in runs[0]["curve"][-1] if key != "step"))
    print("at initialisation:", theorem)


def _last(runs: list[dict[str, Any]], key: str) -> str:
    values = [run["curve"][-1][key] for run in runs]
    return f"{median(values):.3g} ({', '.join(f'{value:.2g}' for value in values)})"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _draw(arms: dict[str, list[dict[str, Any]]], path: Path) -> None:
    with drawing(path, 1, 2, figsize=(10, 4), width_ratios=(1, 1.4)) as (_, (left, right)):
        for colour, name in enumerate(("remix", "soft, all", "soft, largest two")):
            for run in arms[name]:
                steps, values = zip(*((point["step"], point["effective"]) for point in run["curve"]), strict=True)
                label = name if run["seed"] == 0 else None
                left.plot(steps, values, color=f"C{colour}", alpha=0.7, linewidth=1, label=label)
        left.set(xlabel="training step", ylabel="effective number of LoRAs", ylim=(0.9, PARTS + 0.1))
        left.legend(frameon=False)
        rows = {**arms, "remix, sampled": arms["remix"]}
        for place, (name, runs) in enumerate(rows.items()):
            key = "sampled_error" if name == "remix, sampled" else "error"
            errors = [max(run["curve"][-1][key], 1e-6) for run in runs]
            right.plot(errors, [place] * len(errors), "o", color="C0", alpha=0.5, markersize=4)
            right.plot(median(errors), place, "|", color="black", markersize=14)
        right.set(xscale="log", xlabel="error / error without an update (bars: medians)")
        right.set_xticks([0.05, 0.1, 0.2, 0.5], ["0.05", "0.1", "0.2", "0.5"])
        right.xaxis.set_minor_formatter("")
        right.set_yticks(range(len(rows)), list(rows))
        right.invert_yaxis()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        Path(arguments[0]) if arguments else OUT,
        int(arguments[1]) if len(arguments) > 1 else STEPS,
        int(arguments[2]) if len(arguments) > 2 else SEEDS,
    )
