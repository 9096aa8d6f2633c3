# SPDX-License-Identifier: Apache-2.0
"""Which earlier turns a prompt shows and what a trajectory may spend: the rules, and validations played by them."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.metric_utils import process_validation_metrics

from tests.rollout.chat_tokenizers import tokenizer as train
from tests.rollout.scripted_loop import LOST, OK, REFERENCE, ROW, WRONG, play, played
from verl_kernel.errors import ConfigError
from verl_kernel.reward.record import load_turns
from verl_kernel.rollout.context import PastTurn, rebuilt_messages, shown_turns
from verl_kernel.rollout.trajectory import summarise
from verl_kernel.rollout.turn_budget import Spent, TurnBudget

REWARDS = st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 1.75]), max_size=9)  # Sums are exact.


def last(rewards, window):
    return tuple(number for number in range(1, len(rewards) + 1) if number > len(rewards) - window)


def best_window(rewards, window):
    """The earliest of the best runs."""
    runs = [tuple(range(i + 1, i + window + 1)) for i in range(max(len(rewards) - window + 1, 0))]
    sums = [sum(rewards[number - 1] for number in run) for run in runs]
    return runs[sums.index(max(sums))] if runs else tuple(range(1, len(rewards) + 1))


def top_w(rewards, window):
    """The latest of the best choices."""
    choices = combinations(range(1, len(rewards) + 1), min(window, len(rewards)))
    return max(choices, key=lambda choice: (sum(rewards[number - 1] for number in choice), choice[::-1]))


ORACLES = {
    "concat": lambda rewards, window: tuple(range(1, len(rewards) + 1)), "last": last, "best_window": best_window,
    "top_w": top_w,
}  # fmt: skip


@pytest.mark.parametrize("context", ORACLES)
@given(rewards=REWARDS, window=st.integers(min_value=0, max_value=6))
def test_a_prompt_shows_the_turns_of_its_rule(context, rewards, window):
    assert shown_turns(rewards, context, window) == ORACLES[context](rewards, window)


def test_runs_of_the_same_rewards_in_another_order_are_equal():
    assert 0.3 + 0.2 + 0.1 < 0.2 + 0.1 + 0.3
    assert shown_turns([0.3, 0.2, 0.1, 0.3], "best_window", 3) == (1, 2, 3)


def test_a_prompt_holds_the_task_and_the_shown_turns():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    turns = [PastTurn(f"a{number}", f"f{number}", 0.0) for number in (1, 2, 3)]
    assert rebuilt_messages(messages, turns, ()) == messages
    assert [(one["role"], one["content"]) for one in rebuilt_messages(messages, turns, (1, 3))] == [
        ("system", "s"), ("user", "u"), ("assistant", "a1"), ("user", "f1"), ("assistant", "a3"), ("user", "f3"),
    ]  # fmt: skip
    assert messages == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


@pytest.mark.parametrize(("spent", "reason"), [
    (Spent(), None), (Spent(2, 99, 4.9), None), (Spent(3, 99, 4.9), "turns"), (Spent(2, 100, 4.9), "tokens"),
    (Spent(2, 99, 5.0), "seconds"), (Spent(3, 100, 5.0), "turns"),
])  # fmt: skip
def test_a_further_turn_needs_all_of_its_budgets(spent, reason):
    assert TurnBudget(turns=3, tokens=100, seconds=5.0).exhausted(spent) == reason


def test_without_limits_only_turns_count():
    assert TurnBudget(turns=2).exhausted(Spent(1, 10**9, 1e9)) is None


def test_a_turn_adds_to_what_is_spent():
    assert Spent().plus(30, 0.5).plus(12, 0.25) == Spent(2, 42, 0.75)


MESSAGES = [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": "Write a kernel."}]
HELD_OUT = {**ROW, "raw_prompt": MESSAGES, "kernel_validation": True}
SPEEDUPS = [2.0, None, 0.5, 0.5, None, 1.5, None, 1.0]
"""By turn; None is a wrong answer. Good turns lie apart, so that the three rules show different ones."""
RESULTS = [WRONG if speed is None else OK.model_copy(update={"speedup": speed}) for speed in SPEEDUPS]
ANSWERS = [f"Try {number}.\n```python\nx = {number}\n```" for number in range(1, 9)]
ROOMY = {"prompt_length": 4000, "max_turns": 8, "window": 2}


@pytest.fixture(scope="module")
def tokenizer():
    return train([*ANSWERS, REFERENCE] * 4)


async def validated(monkeypatch, tokenizer, results=RESULTS, **options):
    return await played(monkeypatch, tokenizer, ANSWERS, results, row=HELD_OUT, **(ROOMY | options))


def turns_of(outputs):
    return load_turns(outputs[-1].extra_fields["reward_extra_info"]["kernel_turns"])


@pytest.mark.parametrize("context", ["last", "best_window", "top_w"])
async def test_each_prompt_is_the_task_with_chosen_turns(monkeypatch, tokenizer, context):
    outputs, policy, _ = await validated(monkeypatch, tokenizer, context=context)
    turns = turns_of(outputs)
    rewards = [turn.reward for turn in turns]
    for number, (turn, prompt) in enumerate(zip(turns, policy.prompts, strict=True)):
        assert turn.shown == shown_turns(rewards[:number], context, 2)
        text = tokenizer.decode(prompt)
        assert text.startswith(tokenizer.apply_chat_template(MESSAGES, tokenize=False))
        assert [answer in text for answer in ANSWERS] == [k in turn.shown for k in range(1, 9)]
        told = ["incorrect" if SPEEDUPS[k - 1] is None else f"{SPEEDUPS[k - 1]:.2f}x" for k in turn.shown]
        assert all(word in part for word, part in zip(told, text.split("Try ")[1:], strict=True))


async def test_every_turn_is_a_row(monkeypatch, tokenizer):
    outputs, policy, gym = await validated(monkeypatch, tokenizer, context="top_w")
    rows, turns = [output.as_dict() for output in outputs], turns_of(outputs)
    assert len(rows) == len(turns) == 8
    assert gym.sources == [f"x = {number}\n" for number in range(1, 9)]
    for row, turn, prompt, said in zip(rows, turns, policy.prompts, policy.said, strict=True):
        assert row["prompts"].tolist() == prompt
        assert row["responses"].tolist() == said
        assert (turn.prompt_tokens, turn.start, turn.stop) == (len(prompt), 0, len(said))
        assert len(row["response_mask"]) == len(row["rollout_log_probs"]) == len(said)
        assert row["response_mask"].all()
        assert row["num_turns"] == 16
    assert rows[-1]["rm_scores"].sum().item() == pytest.approx(sum(turn.reward for turn in turns))
    info = outputs[-1].extra_fields["reward_extra_info"]
    assert summarise(list(turns)).items() <= info.items()
    assert info["tokens"] == sum(map(len, [*policy.prompts, *policy.said]))
    assert {row.keys() == rows[0].keys() for row in rows} == {True}


async def test_last_and_best_are_reported_for_every_turn(monkeypatch, tokenizer):
    outputs, _, _ = await validated(monkeypatch, tokenizer, context="last")
    info = outputs[-1].extra_fields["reward_extra_info"]
    assert [info[f"turn_{k}_acc"] for k in range(1, 8)] == [float(speed is not None) for speed in SPEEDUPS[:7]]
    assert [info[f"turn_{k}_fast@1.2"] for k in range(1, 8)] == [1, 0, 0, 0, 0, 1, 0]
    assert {info[f"turn_{k}_best_{name}"] for k in range(1, 8) for name in ("acc", "fast@1.2")} == {1.0}
    assert (info["acc"], info["last_turn_fast@1.2"]) == (1.0, 0.0)


async def test_verl_averages_the_figures_and_leaves_the_turns_out(monkeypatch, tokenizer):
    infos = []
    for results in (RESULTS, RESULTS[::-1]):
        outputs, _, _ = await validated(monkeypatch, tokenizer, results, context="top_w")
        infos.append(outputs[-1].extra_fields["reward_extra_info"])
    columns = {key: [info[key] for info in infos] for key in infos[0]}
    found = process_validation_metrics(["held_out"] * 2, ["a", "b"], columns)["held_out"]
    assert set(columns) - set(found) == {"kernel_turns", "task_hash"}
    assert (found["turn_2_best_acc"]["mean@1"], found["turn_2_acc"]["mean@1"]) == (1.0, 0.0)
    assert found["turn_1_fast@1.2"]["mean@1"] == 0.5


async def test_a_prompt_without_room_shows_fewer_turns_and_says_so(monkeypatch, tokenizer):
    outputs, policy, _ = await validated(monkeypatch, tokenizer, context="top_w", window=4)
    assert [len(turn.shown) for turn in turns_of(outputs)] == [0, 1, 2, 3, 4, 4, 4, 4]
    assert outputs[-1].extra_fields["reward_extra_info"]["narrowed"] == 0.0
    room = min(map(len, policy.prompts[4:])) - 1
    outputs, policy, _ = await validated(monkeypatch, tokenizer, context="top_w", window=4, prompt_length=room)
    turns = turns_of(outputs)
    assert max(map(len, policy.prompts)) <= room
    assert len(turns) == 8
    assert max(len(turn.shown) for turn in turns) == 3
    narrowed = sum(len(turn.shown) < min(4, earlier) for earlier, turn in enumerate(turns)) / 8
    assert outputs[-1].extra_fields["reward_extra_info"]["narrowed"] == narrowed > 0
    own = len(policy.prompts[0])
    outputs, policy, _ = await validated(monkeypatch, tokenizer, context="top_w", prompt_length=own)
    assert {len(prompt) for prompt in policy.prompts} == {own}


async def test_an_answer_has_the_whole_response_or_its_turns_budget(monkeypatch, tokenizer):
    _, policy, _ = await validated(monkeypatch, tokenizer, context="last", response_length=300)
    assert set(policy.budgets) == {300}
    _, policy, _ = await validated(monkeypatch, tokenizer, context="last", response_length=300, turn_tokens=50)
    assert set(policy.budgets) == {50}


async def test_a_lost_turn_ends_the_trajectory_and_is_counted(monkeypatch, tokenizer):
    outputs, policy, _ = await validated(monkeypatch, tokenizer, [*RESULTS[:2], LOST], context="top_w")
    info = outputs[-1].extra_fields["reward_extra_info"]
    assert len(outputs) == len(policy.prompts) == 3
    assert (info["unjudged"], info["acc"], info["best_turn_acc"]) == (1.0, 0.0, 1.0)
    assert (info["turn_7_best_acc"], info["turn_7_acc"]) == (1.0, 0.0)


@pytest.mark.parametrize("context", ["concat", "top_w"])
async def test_a_trajectory_ends_when_its_tokens_or_seconds_are_spent(monkeypatch, tokenizer, context):
    free = {"context": context, "response_length": 2000}
    _, policy, _ = await validated(monkeypatch, tokenizer, **free)
    costs = [len(prompt) + len(said) for prompt, said in zip(policy.prompts, policy.said, strict=True)]
    for spent, turns in ((sum(costs[:3]), 3), (sum(costs[:3]) + 1, 4), (1, 1)):
        _, policy, _ = await validated(monkeypatch, tokenizer, **free, total_tokens=spent)
        assert len(policy.prompts) == turns
    _, policy, _ = await validated(monkeypatch, tokenizer, **free, total_seconds=1e-9)
    assert len(policy.prompts) == 1


@pytest.mark.parametrize(("options", "key"), [
    ({"context": "top_w"}, "kernelgym.context is top_w"),
    ({"total_tokens": 100}, "kernelgym.total_tokens is 100"),
    ({"total_seconds": 1.5}, "kernelgym.total_seconds is 1.5"),
])  # fmt: skip
async def test_a_row_of_training_is_refused(monkeypatch, tokenizer, options, key):
    loop, policy, _ = play(monkeypatch, tokenizer, ANSWERS, RESULTS, **options)
    with pytest.raises(ConfigError, match=f"{key}.*trainer.val_only=True"):
        await loop.run({}, **ROW)
    assert not policy.prompts


async def test_a_validation_in_one_row_has_the_same_figures(monkeypatch, tokenizer):
    lengths = {"response_length": 4000, "max_turns": 8}
    options = {"row": HELD_OUT, "val_only": True}
    output, policy, _ = await played(monkeypatch, tokenizer, ANSWERS, RESULTS, **lengths, **options)
    info, turns = output.extra_fields["reward_extra_info"], output.turns
    assert load_turns(info["kernel_turns"]) == turns
    assert [turn.prompt_tokens for turn in turns] == list(map(len, policy.prompts))
    assert [turn.shown for turn in turns] == [tuple(range(1, number)) for number in range(1, 9)]
    assert [info[f"turn_{k}_acc"] for k in range(1, 8)] == [float(speed is not None) for speed in SPEEDUPS[:7]]
    assert info["tokens"] == sum(map(len, [*policy.prompts, *policy.said]))
    assert "narrowed" not in info


async def test_a_run_that_trains_validates_with_few_figures(monkeypatch, tokenizer):
    loop, _, _ = play(monkeypatch, tokenizer, ANSWERS, RESULTS, response_length=4000, max_turns=8)
    info = (await loop.run({}, **HELD_OUT)).extra_fields["reward_extra_info"]
    assert info.keys() - summarise(list(load_turns(info["kernel_turns"]))).keys() == {"kernel_turns", "task_hash"}
    loop, _, _ = play(monkeypatch, tokenizer, ANSWERS, RESULTS, response_length=4000, max_turns=8)
    assert "kernel_turns" not in (await loop.run({}, **ROW)).extra_fields["reward_extra_info"]
