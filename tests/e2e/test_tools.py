# SPDX-License-Identifier: Apache-2.0
"""Two steps of the recipe cpu_tools: verl's ToolAgentLoop, a policy that was taught to call tools."""

import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.e2e.runs import command, train
from verl_kernel.quickstart.build import build
from verl_kernel.quickstart.options import Quickstart, is_complete

CALL = re.compile(r'<tool_call>{"name": "(check|run)", "arguments": {}}</tool_call>')
SAID = ("It is accepted, compiles and runs.", "On public inputs", "Verdict: ", "There is no ```python block")
pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def taught():
    """A small cold start with tools, made once."""
    out = Path(__file__).parents[2] / "outputs" / "tools_small"
    table = Path(__file__).with_name("difficulty.yaml")
    options = Quickstart(world="tools", conversations=900, val_tasks=2, difficulty=table)
    if not is_complete(out, options):
        build(out, options, lambda step, steps, loss: None)
    return out


@pytest.fixture(scope="module")
def run(taught, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    words = ["trainer.total_training_steps=2", "trainer.save_freq=-1"]
    record = f"trainer.v1.sampler.sampler_kwargs.record_dir={folder}/samples"
    return train(folder, command(taught, folder, *words, record, recipe="cpu_tools"))


@pytest.fixture(scope="module")
def played(run, taught):
    """Of each trajectory: all of its text, what the policy did not write, and its rewards other than 0."""
    tokenizer = AutoTokenizer.from_pretrained(taught / "model")
    found = []
    for row in (row for step in (1, 2) for row in run.rows(step)):
        others = [token for token, own in zip(row["responses"], row["response_mask"], strict=True) if not own]
        rewards = [reward for reward in row["rm_scores"] if reward]
        found.append((tokenizer.decode(row["responses"]), tokenizer.decode(others), rewards))
    return found


def test_a_tool_answers_each_call(played):
    called = [(text.partition("<|tool|>")[0], others) for text, others, _ in played if "<|tool|>" in others]
    answered = [others.partition("<|tool|>")[2] for text, others in called if CALL.search(text)]
    assert answered
    assert [said for said in answered if not said.startswith(SAID)] == []


def test_an_answer_without_a_call_is_all_the_policys(played):
    alone = [others for text, others, _ in played if "<tool_call>" not in text]
    assert alone
    assert set(alone) == {""}


def test_the_reward_is_that_of_the_last_answer(played):
    assert max(len(rewards) for _, _, rewards in played) <= 1
    assert any(rewards for _, _, rewards in played)


def test_the_trainer_reads_the_tokens_that_vllm_drew(run):
    assert all(step["training/rollout_probs_diff_max"] < 1e-3 for step in run.steps)
