# SPDX-License-Identifier: Apache-2.0
"""The loop's decisions, with a scripted policy and a scripted gym; both are real in tests/e2e."""

from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap

from verl_kernel.data.tokenizer import train_tokenizer
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import ConfigError, DataError, InfraError
from verl_kernel.reward.record import load_turns
from verl_kernel.rollout import agent_loop
from verl_kernel.rollout.agent_loop import KernelAgentLoop

REFERENCE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    "def get_inputs():\n    return [torch.ones(1)]\ndef get_init_inputs():\n    return []\n"
)
ROW = {
    "raw_prompt": [{"role": "user", "content": "Write a kernel."}],
    "reward_model": {"ground_truth": REFERENCE},
    "extra_info": {"task_id": "t1"},
}
ANSWER = "Here.\n```python\nx = 1\n```"
FACTS = {"correctness": True, "decoy_kernel": False, "speedup": 2.0, "time_coverage": 1.0}
OK = EvalResult(task_id="t1", status=EvalStatus.OK, **FACTS)
WRONG = EvalResult(task_id="t1", status=EvalStatus.INCORRECT, correctness=False)
LOST = EvalResult(task_id="t1", status=EvalStatus.INFRA_ERROR)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([ANSWER, REFERENCE, "Write a kernel.", "Verdict: ok"] * 4, 400)


class Policy:
    """Answers from a list, cut to the budget; remembers prompts and budgets."""

    def __init__(self, tokenizer, answers):
        self.tokenizer, self.answers, self.prompts, self.budgets = tokenizer, list(answers), [], []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **kwargs):
        self.prompts.append(list(prompt_ids))
        self.budgets.append(sampling_params["max_tokens"])
        ids = self.tokenizer.encode(self.answers.pop(0), add_special_tokens=False) + [self.tokenizer.eos_token_id]
        ids = ids[: self.budgets[-1]]
        extra = {"min_global_steps": len(self.prompts), "max_global_steps": len(self.prompts)}
        return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), num_preempted=0, extra_fields=extra)


class Gym:
    def __init__(self, results):
        self.results, self.sources, self.asked = list(results), [], []

    async def evaluate(self, task, source, **kwargs):
        self.sources.append(source)
        self.asked.append(kwargs)
        return self.results.pop(0)


OURS = "pkg://verl_kernel.sampler.prs"


def play(monkeypatch, tokenizer, answers, results, response_length=800, sampler=OURS, **options):
    policy, gym = Policy(tokenizer, answers), Gym(results)
    monkeypatch.setattr(agent_loop, "gym_handle", lambda options: gym)
    config = OmegaConf.create(
        {
            "kernelgym": {"device": "cpu", **options},
            "data": {},
            "trainer": {"v1": {"sampler": {"custom_sampler": {"path": sampler}}}},
            "actor_rollout_ref": {"rollout": {"response_length": response_length, "prompt_length": 200}},
        }
    )
    loop = KernelAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=policy,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        hf_model_type="qwen3",
    )
    return loop, policy, gym


async def test_two_turns_make_one_row(monkeypatch, tokenizer):
    loop, policy, gym = play(monkeypatch, tokenizer, [ANSWER, ANSWER], [WRONG, OK], max_turns=2)
    row = (await loop.run({"temperature": 1.0}, **ROW)).as_dict()
    turns = load_turns(row["extra_fields"]["kernel_turns"])
    assert gym.sources == [turn.code for turn in turns] == ["x = 1\n"] * 2
    assert row["extra_fields"]["kernel_gym_seconds"] > 0 and row["extra_fields"]["kernel_generate_seconds"] > 0
    assert [turn.reward for turn in turns] == [0.0, 0.5 * (1 + 2 + 1)]
    assert row["rm_scores"].nonzero().flatten().tolist() == [turn.stop - 1 for turn in turns]
    assert (row["extra_fields"]["min_global_steps"], row["extra_fields"]["max_global_steps"]) == (1, 2)
    for turn in turns:
        answer = tokenizer.decode(row["responses"][turn.start : turn.stop], skip_special_tokens=True)
        assert answer == ANSWER and row["response_mask"][turn.start : turn.stop].all()


async def test_the_second_prompt_extends_the_first_answer_token_by_token(monkeypatch, tokenizer):
    loop, policy, _ = play(monkeypatch, tokenizer, [ANSWER, ANSWER], [WRONG, OK], max_turns=2)
    output = await loop.run({}, **ROW)
    first, second = policy.prompts
    assert second[: len(first)] == first
    assert "Verdict: incorrect" in tokenizer.decode(second)
    assert second == (output.prompt_ids + output.response_ids)[: len(second)]


async def test_every_turn_gets_an_even_share_of_what_is_left(monkeypatch, tokenizer):
    loop, policy, _ = play(monkeypatch, tokenizer, [ANSWER] * 2, [WRONG, OK], response_length=600, max_turns=2)
    await loop.run({}, **ROW)
    assert policy.budgets[0] == 300 and 300 < policy.budgets[1] < 600
    loop, policy, _ = play(monkeypatch, tokenizer, [ANSWER] * 2, [WRONG, OK], max_turns=2, turn_tokens=50)
    await loop.run({}, **ROW)
    assert policy.budgets == [50, 50]


async def test_an_answer_cut_off_by_its_budget_earns_nothing_and_the_next_turn_follows(monkeypatch, tokenizer):
    loop, policy, gym = play(monkeypatch, tokenizer, [ANSWER, ANSWER], [OK], max_turns=2, turn_tokens=5)
    output = await loop.run({}, **ROW)
    turns = load_turns(output.extra_fields["kernel_turns"])
    assert [turn.result.status for turn in turns] == [EvalStatus.REJECTED_STATIC] * 2 and not gym.sources
    assert "no_code" in tokenizer.decode(policy.prompts[1])


@pytest.mark.parametrize("judged", [[], [OK], [WRONG, OK]])
async def test_a_lost_turn_is_recorded_and_takes_its_trajectory_out_of_the_loss(monkeypatch, tokenizer, judged):
    loop, policy, _ = play(monkeypatch, tokenizer, [ANSWER] * 3, [*judged, LOST], max_turns=3)
    row = (await loop.run({}, **ROW)).as_dict()
    turns = load_turns(row["extra_fields"]["kernel_turns"])
    assert [turn.result.status for turn in turns] == [result.status for result in (*judged, LOST)]
    assert len(policy.prompts) == len(turns) and turns[-1].reward == 0
    assert len(row["responses"]) == turns[-1].stop and not row["response_mask"].any()
    figures = row["extra_fields"]["reward_extra_info"]
    assert figures["unjudged"] == 1 and figures["acc"] == 0
    assert figures["best_turn_acc"] == (OK in judged)


async def test_a_judged_trajectory_says_so(monkeypatch, tokenizer):
    loop, _, _ = play(monkeypatch, tokenizer, [ANSWER] * 2, [WRONG, OK], max_turns=2)
    assert (await loop.run({}, **ROW)).extra_fields["reward_extra_info"]["unjudged"] == 0


@pytest.mark.parametrize("judged", [[], [OK]])
async def test_where_no_sampler_of_ours_takes_it_out_a_lost_turn_fails_the_rollout(monkeypatch, tokenizer, judged):
    loop, _, _ = play(monkeypatch, tokenizer, [ANSWER] * 2, [*judged, LOST], sampler=None)
    with pytest.raises(InfraError, match="t1 was not judged"):
        await loop.run({}, **ROW)


async def test_validation_only_counts_what_is_lost(monkeypatch, tokenizer):
    loop, _, _ = play(monkeypatch, tokenizer, [ANSWER], [LOST], sampler=None)
    output = await loop.run({}, **ROW, kernel_validation=True)
    assert output.extra_fields["reward_extra_info"]["unjudged"] == 1


@pytest.mark.parametrize(("row", "validate"), [({}, False), ({"kernel_validation": True}, True)])
async def test_the_gym_is_told_the_step_and_what_is_validation(monkeypatch, tokenizer, row, validate):
    loop, _, gym = play(monkeypatch, tokenizer, [ANSWER], [OK], max_turns=1)
    await loop.run({}, **ROW, **row, global_steps=7)
    assert gym.asked == [{"validate": validate, "step": 7}]


async def test_a_response_without_room_for_a_turn_names_the_keys(monkeypatch, tokenizer):
    loop, _, _ = play(monkeypatch, tokenizer, [ANSWER], [OK], response_length=2, max_turns=3)
    with pytest.raises(ConfigError, match="data.max_response_length is 2.*kernelgym.max_turns"):
        await loop.run({}, **ROW)


async def test_a_row_without_reference_names_the_key(monkeypatch, tokenizer):
    loop, _, _ = play(monkeypatch, tokenizer, [ANSWER], [OK])
    with pytest.raises(DataError, match="reward_model.ground_truth"):
        await loop.run({}, **{**ROW, "reward_model": {}})
