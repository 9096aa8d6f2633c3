# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.rollout.turn_budget import Spent, TurnBudget


@pytest.mark.parametrize(
    ("spent", "reason"),
    [
        (Spent(), None),
        (Spent(2, 99, 4.9), None),
        (Spent(3, 99, 4.9), "turns"),
        (Spent(2, 100, 4.9), "tokens"),
        (Spent(2, 99, 5.0), "seconds"),
        (Spent(3, 100, 5.0), "turns"),
    ],
)
def test_a_further_turn_needs_all_of_its_budgets(spent, reason):
    assert TurnBudget(turns=3, tokens=100, seconds=5.0).exhausted(spent) == reason


def test_without_limits_only_turns_count():
    assert TurnBudget(turns=2).exhausted(Spent(1, 10**9, 1e9)) is None


def test_a_turn_adds_to_what_is_spent():
    assert Spent().plus(30, 0.5).plus(12, 0.25) == Spent(2, 42, 0.75)
