# SPDX-License-Identifier: Apache-2.0
"""What policy losses make of stale data: gradient ascent on exact expectations over bandits of three arms.

The gradients are those of `rec_terms` and `topr_weights`, the functions behind the losses, with an answer per arm
weighted by how often the data hold it. `frozen`: all data are drawn from mu, once. `redrawn`: every 20 steps data
are drawn anew from the policy. Writes data/methods/bandits.json and bandits.svg (extra `plot`).
Usage: python benchmarks/methods/bandits.py [folder]
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verl_kernel.loss.options import RecLossOptions, ToprLossOptions
from verl_kernel.loss.rec import rec_terms
from verl_kernel.loss.topr import topr_weights
from verl_kernel.reporting.plots import drawing

OUT = Path(__file__).parents[2] / "data" / "methods"


@dataclass(frozen=True)
class Bandit:
    """One prompt with three answers."""

    mu: tuple[float, ...]
    """How often the behaviour policy gives each."""
    rewards: tuple[float, ...]
    baseline: bool = True
    """Whether the mean reward of the data is subtracted."""
    uniform: bool = False
    """Whether the policy starts uniform instead of at mu."""


BANDITS = {
    "rec": Bandit((0.3, 0.6, 0.1), (0.0, 0.8, 1.0)),
    "second": Bandit((0.05, 0.6, 0.35), (1.0, 0.9, 0.0)),
    "topr": Bandit((0.1, 0.5, 0.4), (1.0, -1.0, -0.3), baseline=False),
    "topr_uniform": Bandit((0.1, 0.5, 0.4), (1.0, -1.0, -0.3), baseline=False, uniform=True),
}
TITLES = {
    "rec": "mu .3 .6 .1, r 0 .8 1",
    "second": "mu .05 .6 .35, r 1 .9 0",
    "topr": "mu .1 .5 .4, r 1 -1 -.3, no baseline",
}
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _rec(**options: Any) -> Loss:
    parsed = RecLossOptions(**options)

    def loss(log_pi: torch.Tensor, log_mu: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        return rec_terms(log_pi, log_mu, advantages, torch.ones_like(log_pi).bool(), parsed).loss

    return loss


def _topr(log_pi: torch.Tensor, log_mu: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(log_pi).bool()
    # An answer is one token here, so that all levels are the same.
    weights = topr_weights((log_pi - log_mu).detach(), advantages, mask, ToprLossOptions(ratio="token"))
    return -weights.alpha * advantages * log_pi


METHODS: dict[str, Loss] = {
    "naive": _rec(),
    "is": _rec(weights="is"),
    "topr": _topr,
    "rec_one_side .2 .2": _rec(clip="one_side", eps_low=0.2, eps_high=0.2),
    "rec_one_side .6 2.0": _rec(clip="one_side", eps_low=0.6, eps_high=2.0),
}
"""Loss of each answer, by log pi, log mu and advantage."""


@dataclass(frozen=True)
class State:
    """The policies after a number of steps, (bandits, 3) each."""

    step: int
    logits: torch.Tensor
    pi: torch.Tensor


def climb(
    loss: Loss, bandits: Sequence[Bandit], steps: Sequence[int], rate: float, redraw: int | None = None
) -> Iterator[State]:
    """Train on all bandits at once and yield where they are after each of `steps`.

    Args:
        loss: of each answer.
        bandits: they do not influence each other.
        steps: increasing.
        rate: step size.
        redraw: steps after which data come from the policy itself; None keeps those of mu.
    """
    data = torch.tensor([bandit.mu for bandit in bandits], dtype=torch.float64)
    uniform = torch.tensor([[bandit.uniform] for bandit in bandits])
    logits = torch.where(uniform, 0.0, data.log()).requires_grad_()
    for step in range(1, max(steps) + 1):
        if redraw and (step - 1) % redraw == 0:
            data = logits.detach().softmax(1)
        total = (data * loss(logits.log_softmax(1), data.log(), advantages_of(bandits, data))).sum()
        (gradient,) = torch.autograd.grad(total, logits)
        logits = (logits.detach() - rate * gradient).requires_grad_()
        if step in steps:
            yield State(step, logits.detach(), logits.detach().softmax(1))


def advantages_of(bandits: Sequence[Bandit], data: torch.Tensor) -> torch.Tensor:
    """Rewards, above the mean of the data where the bandit asks for it: (bandits, 3)."""
    rewards = torch.tensor([bandit.rewards for bandit in bandits], dtype=torch.float64)
    baseline = torch.tensor([[float(bandit.baseline)] for bandit in bandits], dtype=torch.float64)
    return rewards - baseline * (data * rewards).sum(1, keepdim=True)


def value(bandit: Bandit, pi: torch.Tensor) -> float:
    """Expected reward."""
    return float((pi * torch.tensor(bandit.rewards, dtype=pi.dtype)).sum())


def divergence(bandit: Bandit, pi: torch.Tensor) -> float:
    """KL(pi || mu) in nats."""
    return float(torch.xlogy(pi, pi / torch.tensor(bandit.mu, dtype=pi.dtype)).sum())


def record(loss: Loss, steps: Sequence[int], rate: float, redraw: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """All that is saved of a method: for each bandit a row for each of `steps`."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in BANDITS}
    for state in climb(loss, list(BANDITS.values()), steps, rate, redraw):
        for number, (name, bandit) in enumerate(BANDITS.items()):
            pi, logits = state.pi[number], state.logits[number]
            row = {"step": state.step, "value": _short(value(bandit, pi)), "kl": _short(divergence(bandit, pi))}
            row |= {"pi": [_short(p) for p in pi.tolist()], "logits": [_short(x) for x in logits.tolist()]}
            rows[name].append(row)
    return rows


def _short(number: float) -> float:
    return float(f"{number:.4g}")


def log_spaced(last: int) -> list[int]:
    """About two whole numbers to a doubling, up to and with `last` and its halves."""
    count = int(2 * math.log2(last))
    spaced = {round(last ** (place / count)) for place in range(count + 1)}
    return sorted(spaced | {last // 2, last // 4} - {0})


FROZEN = {"last": 40_000, "rate": 0.5}
REDRAWN = {"last": 20_000, "rate": 0.2, "redraw": 20}


def measure() -> dict[str, Any]:
    """Both settings with every method."""
    found: dict[str, Any] = {"bandits": {name: vars(bandit) for name, bandit in BANDITS.items()}}
    for setting, options in (("frozen", FROZEN), ("redrawn", REDRAWN)):
        kept = {key: number for key, number in options.items() if key != "last"}
        curves = {name: record(loss, log_spaced(int(options["last"])), **kept) for name, loss in METHODS.items()}
        found[setting] = {"options": options, "curves": curves}
    return found


def plot(found: dict[str, Any], path: Path) -> None:
    """Three panels a bandit: spread of logits and reward on frozen data, reward on redrawn data."""
    panels = {
        "frozen data: largest logit minus smallest": ("frozen", lambda row: max(row["logits"]) - min(row["logits"])),
        "frozen data: expected reward": ("frozen", lambda row: row["value"]),
        "redrawn every 20 steps: expected reward": ("redrawn", lambda row: row["value"]),
    }
    with drawing(path, 3, len(TITLES), figsize=(12, 9)) as (_, axes):
        for line, (title, (setting, read)) in zip(axes, panels.items(), strict=True):
            for axis, (bandit, name) in zip(line, TITLES.items(), strict=True):
                _panel(axis, found[setting]["curves"], bandit, read)
                axis.set_title(f"{name}\n{title}", fontsize=9)
            line[0].set_ylabel(title.split(": ")[1])
        for axis in axes[0]:
            axis.set_yscale("log")
            axis.minorticks_off()
        axes[0, 0].legend(frameon=False, fontsize=8)


def _panel(axis: Any, curves: dict[str, Any], bandit: str, read: Callable[[dict[str, Any]], float]) -> None:
    for number, (method, rows) in enumerate(curves.items()):
        points = [(row["step"], read(row)) for row in rows[bandit]]
        axis.plot(*zip(*points, strict=True), color=f"C{number}", label=method, linewidth=1.2)
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set_xlabel("step")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    folder.mkdir(parents=True, exist_ok=True)
    found = measure()
    (folder / "bandits.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    plot(found, folder / "bandits.svg")
    for setting in ("frozen", "redrawn"):
        for method, rows in found[setting]["curves"].items():
            for bandit in BANDITS:
                last = rows[bandit][-1]
                print(
                    f"{setting:8} {bandit:13} {method:20} pi {last['pi']} value {last['value']} logits {last['logits']}"
                )


if __name__ == "__main__":
    main()
