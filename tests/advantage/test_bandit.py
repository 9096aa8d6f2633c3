# SPDX-License-Identifier: Apache-2.0
"""Expected gradients on a two-turn bandit, by enumeration of all outcomes of N rollouts: no sampling error."""

import itertools
from typing import Any

import pytest
import torch

from tests.advantage.batches import build, estimated

STOP = 2
LOGITS = (torch.tensor([0.3, -0.5, 0.2]), torch.tensor([[0.7, -0.2], [-0.4, 0.1]]))
FIRST_REWARD = {0: 0.5, 1: -0.25, STOP: 1.0}
SECOND_REWARD = {(0, 0): 2.0, (0, 1): 0.0, (1, 0): 1.5, (1, 1): -1.0}


class Bandit:
    """A first choice (which may be to stop), then a second that depends on it. Parameters: the logits."""

    def __init__(self, may_stop: bool) -> None:
        first = LOGITS[0] if may_stop else LOGITS[0][:STOP]
        self.logits = [first.double().requires_grad_(), LOGITS[1].double().requires_grad_()]
        self.paths: list[tuple[int, ...]] = list(SECOND_REWARD) + ([(STOP,)] if may_stop else [])

    def log_probs(self, path: tuple[int, ...]) -> list[torch.Tensor]:
        logs = [self.logits[0].log_softmax(0)[path[0]]]
        return logs if len(path) == 1 else [*logs, self.logits[1][path[0]].log_softmax(0)[path[1]]]

    def rewards(self, path: tuple[int, ...]) -> list[float]:
        return [FIRST_REWARD[path[0]], *([SECOND_REWARD[path]] if len(path) == 2 else [])]

    def gradient(self, objective: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(objective, self.logits))

    def probability(self, path: tuple[int, ...]) -> torch.Tensor:
        return torch.stack(self.log_probs(path)).sum().exp()

    def true_gradient(self) -> list[torch.Tensor]:
        return self.gradient(sum(self.probability(path) * sum(self.rewards(path)) for path in self.paths))

    def expected_gradient(self, name: str, rollouts: int, **switches: Any) -> list[torch.Tensor]:
        """Mean over all outcomes of the estimator's gradient, every outcome a prompt of its own."""
        outcomes = list(itertools.product(self.paths, repeat=rollouts))
        rows = [path for outcome in outcomes for path in outcome]
        batch = build(
            [self.rewards(path) for path in rows],
            [[(2 * t, 2 * t + 1) for t in range(len(path))] for path in rows],
            [str(i // rollouts) for i in range(len(rows))],
        )
        advantages = estimated(name, batch, **switches)
        surrogate = torch.zeros((), dtype=torch.float64)
        for i, outcome in enumerate(outcomes):
            weight = torch.stack([self.probability(path) for path in outcome]).prod().detach()
            for path, values in zip(outcome, advantages[i * rollouts : (i + 1) * rollouts], strict=True):
                logs = self.log_probs(path)
                surrogate = surrogate + weight / rollouts * sum(a * g for a, g in zip(values, logs, strict=True))
        return self.gradient(surrogate)


def close(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(actual, expected, strict=True))


@pytest.mark.parametrize("rollouts", [2, 3])
@pytest.mark.parametrize(("may_stop", "baseline"), [(False, "turn"), (False, "padded"), (True, "padded")])
def test_trloo_is_unbiased_and_turn_grpo_scaled(rollouts, may_stop, baseline):
    bandit = Bandit(may_stop)
    truth = bandit.true_gradient()
    assert max(part.abs().max() for part in truth) > 0.1
    assert close(bandit.expected_gradient("trloo", rollouts, baseline=baseline), truth)
    scale = 1 - 1 / rollouts
    assert close(bandit.expected_gradient("turn_grpo", rollouts, baseline=baseline), [scale * g for g in truth])


@pytest.mark.parametrize("rollouts", [2, 3])
def test_turn_groups_weaken_late_turns_where_policies_stop(rollouts):
    bandit = Bandit(may_stop=True)
    first, second = bandit.true_gradient()
    goes_on = 1 - bandit.probability((STOP,)).detach()
    accompanied = 1 - (1 - goes_on) ** (rollouts - 1)
    assert close(bandit.expected_gradient("trloo", rollouts, singleton="zero"), [first, accompanied * second])
    assert close(bandit.expected_gradient("trloo", rollouts, singleton="raw"), [first, second])
    # The self-inclusive mean shrinks turns by 1 - 1/N of their own N: no longer one scale for all.
    shrunk = bandit.expected_gradient("turn_grpo", rollouts)
    scale = 1 - 1 / rollouts
    assert close(shrunk[:1], [scale * first])
    assert (shrunk[1].norm() / second.norm() < scale - 0.05).item()


@pytest.mark.parametrize("may_stop", [False, True])
def test_the_terminal_correction_keeps_the_direction(may_stop):
    bandit = Bandit(may_stop)
    switches = {"gamma": 0.5, "baseline": "padded"}
    plain = bandit.expected_gradient("trloo", 2, **switches)
    corrected = bandit.expected_gradient("trloo", 2, shaping="difference_terminal", **switches)
    assert close(corrected, [0.5 * part for part in plain])
    shaped = bandit.expected_gradient("trloo", 2, shaping="difference", **switches)
    flat, other = (torch.cat([part.flatten() for part in parts]) for parts in (plain, shaped))
    assert torch.cosine_similarity(flat, other, dim=0) < 0.99
