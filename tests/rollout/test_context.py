# SPDX-License-Identifier: Apache-2.0
"""Which earlier turns a prompt shows, against brute force."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.rollout.context import PastTurn, rebuilt_messages, shown_turns

REWARDS = st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 1.75]), max_size=9)  # Sums are exact.
WINDOW = st.integers(min_value=0, max_value=6)
LIMITED = ("last", "best_window", "top_w")


@given(REWARDS, WINDOW)
def test_concat_shows_every_turn(rewards, window):
    assert shown_turns(rewards, "concat", window) == tuple(range(1, len(rewards) + 1))


@given(REWARDS, WINDOW, st.sampled_from(LIMITED))
def test_a_window_is_full_in_order_and_of_different_turns(rewards, window, context):
    shown = shown_turns(rewards, context, window)
    assert len(shown) == min(window, len(rewards))
    assert list(shown) == sorted(set(shown))
    assert set(shown) <= set(range(1, len(rewards) + 1))


@given(REWARDS, WINDOW)
def test_last_shows_the_last_turns(rewards, window):
    expected = [number for number in range(1, len(rewards) + 1) if number > len(rewards) - window]
    assert list(shown_turns(rewards, "last", window)) == expected


@given(REWARDS, WINDOW)
def test_best_window_is_the_earliest_of_the_best_runs(rewards, window):
    runs = [tuple(range(i + 1, i + window + 1)) for i in range(max(len(rewards) - window + 1, 0))]
    sums = [sum(rewards[number - 1] for number in run) for run in runs]
    expected = runs[sums.index(max(sums))] if runs else tuple(range(1, len(rewards) + 1))
    assert shown_turns(rewards, "best_window", window) == expected


@given(REWARDS, WINDOW)
def test_top_w_is_the_latest_of_the_best_choices(rewards, window):
    choices = list(combinations(range(1, len(rewards) + 1), min(window, len(rewards))))

    def worth(choice):
        return sum(rewards[number - 1] for number in choice), choice[::-1]

    assert shown_turns(rewards, "top_w", window) == max(choices, key=worth)


def test_the_rules_differ_where_good_turns_lie_apart():
    rewards = [2.0, 0.0, 0.9, 0.9, 0.0, 1.5, 0.1, 0.0]
    shown = {context: shown_turns(rewards, context, 2) for context in LIMITED}
    assert shown == {"last": (7, 8), "best_window": (1, 2), "top_w": (1, 6)}
    assert shown_turns(rewards, "best_window", 4) == (1, 2, 3, 4)
    assert shown_turns(rewards, "top_w", 4) == (1, 3, 4, 6)
    assert shown_turns(rewards, "last", 4) == (5, 6, 7, 8)


@pytest.mark.parametrize(("context", "expected"), [("best_window", (1, 2)), ("top_w", (3, 4)), ("last", (3, 4))])
def test_published_and_top_w_break_ties_differently(context, expected):
    assert shown_turns([0.0, 0.0, 0.0, 0.0], context, 2) == expected


def test_runs_of_the_same_rewards_in_another_order_are_equal():
    assert 0.3 + 0.2 + 0.1 < 0.2 + 0.1 + 0.3
    assert shown_turns([0.3, 0.2, 0.1, 0.3], "best_window", 3) == (1, 2, 3)


def test_a_prompt_holds_the_task_and_the_shown_turns():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    turns = [PastTurn(f"a{number}", f"f{number}", 0.0) for number in (1, 2, 3)]
    assert rebuilt_messages(messages, turns, ()) == messages
    assert [(one["role"], one["content"]) for one in rebuilt_messages(messages, turns, (1, 3))] == [
        ("system", "s"),
        ("user", "u"),
        ("assistant", "a1"),
        ("user", "f1"),
        ("assistant", "a3"),
        ("user", "f3"),
    ]
    assert messages == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
