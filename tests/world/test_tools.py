# SPDX-License-Identifier: Apache-2.0
"""Conversations in which an answer calls a tool."""

from random import Random

import pytest

from verl_kernel.reward.extract import extract_code
from verl_kernel.rollout.tried import ACCEPTED
from verl_kernel.world.difficulty import read_difficulty
from verl_kernel.world.talks import FEEDBACK_CHARS, TOOLS, call_text
from verl_kernel.world.tokenizer import encode_conversation, train_tokenizer
from verl_kernel.world.world import World


@pytest.fixture(scope="module")
def talks():
    return World(read_difficulty("tools")).talks(120, Random(2), set())


@pytest.fixture(scope="module")
def called(talks):
    return [talk for talk in talks if len(talk) == 4]


@pytest.mark.slow
def test_an_answer_calls_a_tool_or_ends(talks, called):
    assert {len(talk) for talk in talks} == {2, 4}
    assert not any("<tool_call>" in talk[-1]["content"] for talk in talks)
    for talk in called:
        assert [message["role"] for message in talk] == ["user", "assistant", "tool", "assistant"]
        assert talk[1]["content"].endswith(tuple(map(call_text, TOOLS)))


def test_every_answer_holds_a_program(talks):
    assert all(extract_code(message["content"]) for talk in talks for message in talk[1::2])


@pytest.mark.parametrize("tool", TOOLS)
def test_both_tools_are_taught(called, tool):
    said = [talk[2]["content"] for talk in called if call_text(tool) in talk[1]["content"]]
    assert any("Verdict: " in text for text in said)
    assert any(text.startswith({"check": ACCEPTED, "run": "On public inputs"}[tool]) for text in said)
    assert max(map(len, said)) <= FEEDBACK_CHARS + 60


def test_what_a_check_accepts_is_the_answer(called):
    accepted = [talk for talk in called if talk[2]["content"] == ACCEPTED]
    assert accepted
    assert all(talk[1]["content"].startswith(talk[3]["content"]) for talk in accepted)


def test_a_tools_message_is_encoded_as_the_template_has_it(called):
    tokenizer = train_tokenizer((message["content"] for talk in called for message in talk), 800)
    ids, targets = encode_conversation(tokenizer, called[0])
    assert ids == tokenizer.apply_chat_template(called[0], tokenize=True, return_dict=False)
    assert sum(targets) < len(targets)


def test_rows_are_played_with_tools():
    world = World(read_difficulty("tools"))
    (row,) = world.rows(world.tasks(1, Random(1), set()), "train")
    assert row["agent_name"] == "tool_agent"
    assert list(row["extra_info"]["tools_kwargs"]) == list(TOOLS)
