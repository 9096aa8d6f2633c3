# SPDX-License-Identifier: Apache-2.0
"""The agent loop with a scripted policy and a scripted gym."""

from types import SimpleNamespace

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap

from tests.env.programs import reference
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.rollout import agent_loop
from verl_kernel.rollout.agent_loop import KernelAgentLoop

REFERENCE = reference("x", "torch.ones(1)")
ROW = {
    "raw_prompt": [{"role": "user", "content": "Write a kernel."}],
    "reward_model": {"ground_truth": REFERENCE},
    "extra_info": {"task_id": "t1"},
}
ANSWER = "Here.\n```python\nx = 1\n```"
FACTS = {"correctness": True, "decoy_kernel": False, "speedup": 2.0, "time_coverage": 1.0, "timing_source": "simulated"}
OK = EvalResult(task_id="t1", status=EvalStatus.OK, **FACTS)
WRONG = EvalResult(task_id="t1", status=EvalStatus.INCORRECT, correctness=False)
LOST = EvalResult(task_id="t1", status=EvalStatus.INFRA_ERROR)
OURS = "pkg://verl_kernel.sampler.prs"


class Policy:
    """Answers from a list, ended by `end` and cut to the budget; remembers what it was asked."""

    def __init__(self, tokenizer, answers, end="<|im_end|>"):
        self.tokenizer, self.answers, self.end = tokenizer, list(answers), end
        self.prompts, self.budgets, self.params, self.said = [], [], [], []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **kwargs):
        self.prompts.append(list(prompt_ids))
        self.budgets.append(sampling_params["max_tokens"])
        self.params.append(sampling_params)
        ids = self.tokenizer.encode(self.answers.pop(0) + self.end, add_special_tokens=False)[: self.budgets[-1]]
        self.said.append(ids)
        extra = {"min_global_steps": len(self.prompts), "max_global_steps": len(self.prompts)}
        return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), num_preempted=0, extra_fields=extra)


class Gym:
    def __init__(self, results):
        self.results, self.sources, self.tasks, self.asked = list(results), [], [], []

    async def evaluate(self, task, source, **kwargs):
        self.sources.append(source)
        self.tasks.append(task)
        self.asked.append(kwargs)
        return self.results.pop(0)


def play(
    monkeypatch, tokenizer, answers, results, response_length=800, prompt_length=200, sampler=OURS, end="<|im_end|>",
    family="qwen3", val_only=False, **options,
):  # fmt: skip
    policy, gym = Policy(tokenizer, answers, end), Gym(results)
    monkeypatch.setattr(agent_loop, "gym_handle", lambda options: gym)
    trainer = {"val_only": val_only, "v1": {"sampler": {"custom_sampler": {"path": sampler}}}}
    rollout = {"response_length": response_length, "prompt_length": prompt_length}
    nodes = {"kernelgym": {"device": "cpu", **options}, "data": {}, "trainer": trainer}
    config = OmegaConf.create({**nodes, "actor_rollout_ref": {"rollout": rollout}})
    loop = KernelAgentLoop(
        trainer_config=DictConfigWrap(config), server_manager=policy, tokenizer=tokenizer, processor=None,
        dataset_cls=None, data_config=DictConfigWrap(config.data), hf_model_type=family,
    )  # fmt: skip
    return loop, policy, gym


async def played(monkeypatch, tokenizer, answers, results, *, row=ROW, **options):
    loop, policy, gym = play(monkeypatch, tokenizer, answers, results, **options)
    return await loop.run({}, **row), policy, gym
