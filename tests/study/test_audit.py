# SPDX-License-Identifier: Apache-2.0
"""The audit of gradients: its figures and gradients against naive sums, its rollouts, and the command."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from recipes.cpu_study.audit import arms, statistics
from recipes.cpu_study.audit.command import app
from recipes.cpu_study.audit.gradients import distance, group_gradients, log_probs
from recipes.cpu_study.audit.report import StepSettings, negatives_share, rows, table
from recipes.cpu_study.audit.rollouts import Group, Rollout, read_groups
from recipes.cpu_study.audit.sampling import answers
from tests.advantage.oracle import naive_advantages, naive_trloo
from tests.commands.lines import invoked
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import DataError
from verl_kernel.reward.record import TurnRecord

OK = EvalResult(task_id="t", status=EvalStatus.OK, correctness=True, decoy_kernel=False)
WRONG = EvalResult(task_id="t", status=EvalStatus.INCORRECT, correctness=False)
SETTINGS = StepSettings(step=2, rate=0.01, seed=0)


def rollout(rewards: Sequence[float], kept: Sequence[bool], rng: Random) -> Rollout:
    """Two tokens of prompt; turns of three tokens with two of feedback between them."""
    turns = [
        TurnRecord(start=5 * turn, stop=5 * turn + 3, reward=reward, result=OK if reward > 0 else WRONG)
        for turn, reward in enumerate(rewards)
    ]
    length = turns[-1].stop
    mask = [int(position % 5 < 3) for position in range(length)]
    tokens = [rng.randrange(12) for _ in range(2 + length)]
    return Rollout(tuple(tokens[:2]), tuple(tokens[2:]), tuple(mask), tuple(turns), tuple(kept))


def made_groups(count: int = 5, seed: int = 0) -> list[Group]:
    rng = Random(seed)

    def drawn() -> Rollout:
        rewards = [rng.choice([0.0, 0.0, 1.0, 2.5]) for _ in range(2)]
        return rollout(rewards, [rng.random() < 0.8 for _ in range(2)], rng)

    return [tuple(drawn() for _ in range(4)) for _ in range(count)]


def small_model(**changes: Any) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 8, "vocab_size": 12}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": True}
    return Qwen3ForCausalLM(Qwen3Config(**sizes | heads | changes)).eval()


def test_signal_over_noise_of_two_groups_by_hand():
    gradients = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    products = statistics.gram(gradients, gradients)
    # |mean|^2 = 4, variance 2, so |mu|^2 = 4 - 2/2 = 3, over 2/B.
    assert statistics.snr(products, torch.arange(2), 1) == pytest.approx(1.5)
    assert statistics.snr(products, torch.arange(2), 2) == pytest.approx(3.0)
    # Of the first summand's (1, 0) and (2, 0): its covariance with the whole, 1/2 of 1.
    part = statistics.gram(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), gradients)
    assert statistics.noise_share(products, part, torch.arange(2)) == pytest.approx(0.5)


def test_the_gain_of_a_step_by_hand():
    gradients = torch.tensor([[1.0, -2.0], [1.0, -1.0], [-5.0, 0.0]])
    goals = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])
    # The mean of the first two is (1, -1.5): its sign is (1, -1), and group 2 gains rate * (2 + 1).
    (gains,) = statistics.step_gains(gradients, [goals], torch.tensor([[0, 1]]), 0.1)
    assert gains[0, 2] == pytest.approx(0.3)
    asked = torch.tensor([True, True, True])
    assert statistics.mean_gain(gains, torch.tensor([[0, 1]]), asked, torch.arange(3)) == pytest.approx(0.3)


def test_figures_of_many_groups_match_naive_loops():
    rng = np.random.default_rng(0)
    gradients, goals = rng.normal(0.3, 1.0, (7, 11)), rng.normal(0.2, 1.0, (7, 11))
    left, right = (torch.tensor(values, dtype=torch.float32) for values in (gradients, goals))
    steps = statistics.steps_of(range(7), 2, seed=3)
    assert len(steps) == 3 * statistics.ORDERS
    assert all(len(set(step)) == 2 for step in steps.tolist())
    asked = torch.tensor([True] * 4 + [False] * 3)
    nothing, gains = statistics.step_gains(left, [0 * right, right], steps, 0.5)
    assert not nothing.any()
    naive, cosines = [], []
    for step in steps.tolist():
        mean, rest = gradients[step].mean(0), np.delete(gradients, step, 0).mean(0)
        cosines.append(mean @ rest / np.linalg.norm(mean) / np.linalg.norm(rest))
        naive += [0.5 * np.sign(mean) @ goals[group] for group in range(4) if group not in step]
    assert statistics.mean_gain(gains, steps, asked, torch.arange(7)) == pytest.approx(np.mean(naive), rel=1e-4)
    products = statistics.gram(left, left)
    assert statistics.cosine(products, steps, torch.arange(7)) == pytest.approx(np.mean(cosines), rel=1e-4)
    spread = gradients.var(0, ddof=1).sum()
    expected = ((gradients.mean(0) ** 2).sum() - spread / 7) / (spread / 2)
    assert statistics.snr(products, torch.arange(7), 2) == pytest.approx(expected, rel=1e-4)


def test_an_interval_of_a_mean_is_that_of_the_bootstrap():
    values = torch.tensor(np.random.default_rng(1).normal(2.0, 1.0, 40))
    found = statistics.jackknifed(lambda groups: float(values[groups].mean()), 40, seed=0)
    error = float(values.std() / 40**0.5)
    assert found.value == pytest.approx(float(values.mean()))
    assert found.parts.tolist() == pytest.approx(values.tolist())
    assert found.low == pytest.approx(found.value - 1.96 * error, abs=0.2 * error)
    assert found.high == pytest.approx(found.value + 1.96 * error, abs=0.2 * error)
    nothing = found.less(found, seed=0)
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 0)


def naive_weights(groups: Sequence[Group]) -> dict[str, list[list[float]]]:
    """The arms that plain loops can make."""
    every = [each for group in groups for each in group]
    rewards = [[turn.reward for turn in each.turns] for each in every]
    uids = [str(number) for number, group in enumerate(groups) for _ in group]

    def kept(values: list[list[float]]) -> list[list[float]]:
        return [[v * k for v, k in zip(own, each.kept, strict=True)] for own, each in zip(values, every, strict=True)]

    signs = [[float(reward > 0) for reward in row] for row in rewards]
    whole = kept(naive_trloo(rewards, uids))
    return {
        "trloo": whole,
        "turn_grpo": kept(naive_advantages(rewards, uids)),
        "deviation": kept(naive_advantages(rewards, uids, leave_one_out=True, normaliser="deviation")),
        "no_discount": kept(naive_advantages(rewards, uids, leave_one_out=True, gamma=0.0)),
        "no_prs": naive_trloo(rewards, uids),
        "right_or_wrong": kept(naive_trloo(signs, uids)),
        "rsft": kept(signs),
        "rsft_no_prs": signs,
        "no_baseline": kept(rewards),
        "positives": [[max(value, 0.0) for value in row] for row in whole],
        "quarter": [[value if value > 0 else value / 4 for value in row] for row in whole],
        "negatives": [[min(value, 0.0) for value in row] for row in whole],
    }


def flat(values: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in values for value in row]


def test_every_arm_weighs_turns_as_naive_sums_do():
    groups = made_groups()
    found, expected = arms.weights(groups), naive_weights(groups)
    assert found.keys() == expected.keys() == arms.ARMS.keys()
    for name, weights in expected.items():
        assert flat(found[name]) == pytest.approx(flat(weights), abs=1e-5), name


def test_the_goal_credits_all_turns_up_to_the_one_that_counts():
    groups = made_groups(1)
    signs = [[float(turn.reward > 0) for turn in each.turns] for each in groups[0]]
    others = [[sum(row[turn] for row in signs) / 3 - own[turn] / 3 for turn in (0, 1)] for own in signs]
    first = [[own[0] - mean[0], 0.0] for own, mean in zip(signs, others, strict=True)]
    last = [[own[1] - mean[1]] * 2 for own, mean in zip(signs, others, strict=True)]
    assert flat(arms.goal(groups, 0)) == pytest.approx(flat(first), abs=1e-6)
    assert flat(arms.goal(groups, -1)) == pytest.approx(flat(last), abs=1e-6)


def test_gradients_are_those_of_the_loss_of_each_group():
    model, groups = small_model(), made_groups(2)
    weights = {name: arms.weights(groups)[name] for name in ("trloo", "rsft")}
    noted: list[int] = []
    found = group_gradients(model, groups, weights, 0.7, lambda: noted.append(1))
    assert len(noted) == 2
    for name, (number, group) in itertools.product(weights, enumerate(groups)):
        total = torch.zeros(())
        for each, own in zip(group, weights[name][4 * number :], strict=False):
            ids = torch.tensor([[*each.prompt, *each.response]])
            logs = (model(input_ids=ids).logits[0] / 0.7).log_softmax(-1)
            for turn, weight in zip(each.turns, own, strict=True):
                places = range(2 + turn.start, 2 + turn.stop)
                total = total + weight * sum(logs[place - 1, ids[0, place]] for place in places) / 4
        model.zero_grad()
        total.backward()
        naive = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        torch.testing.assert_close(found[name][number], naive, atol=1e-5, rtol=1e-4)


def test_an_audit_of_made_rollouts_says_what_negatives_bring():
    model, groups = small_model(), made_groups(6)
    weights = arms.weights(groups) | {"first turn": arms.goal(groups, 0), "last turn": arms.goal(groups, -1)}
    gradients = group_gradients(model, groups, weights, 1.0, lambda: None)
    found = {row["arm"]: row for row in rows(gradients, [True] * 6, [True] * 6, SETTINGS)}
    assert found.keys() == arms.ARMS.keys()
    assert found["trloo"]["ahead, last turn"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    # With as many rollouts in all groups the two differ by a factor, which neither figure sees.
    assert found["turn_grpo"]["snr"]["value"] == pytest.approx(found["trloo"]["snr"]["value"], rel=1e-3)
    assert found["turn_grpo"]["gain, last turn"]["value"] == pytest.approx(
        found["trloo"]["gain, last turn"]["value"], rel=1e-3
    )
    share = negatives_share(gradients, [True] * 6, 0)
    centred = {name: (values - values.mean(0)).double() for name, values in gradients.items()}
    covariance = float((centred["negatives"] * centred["trloo"]).sum() / centred["trloo"].square().sum())
    assert share["value"] == pytest.approx(covariance, abs=1e-4)
    text = table([*found.values()], share, 2)
    assert len(text.splitlines()) == 2 + len(arms.ARMS) + 2
    assert "| TRLOO, negatives x 0.25 |" in text


def test_groups_that_are_asked_are_no_part_of_a_step():
    model, groups = small_model(), made_groups(6)
    weights = arms.weights(groups) | {"first turn": arms.goal(groups, 0), "last turn": arms.goal(groups, -1)}
    gradients = group_gradients(model, groups, weights, 1.0, lambda: None)
    trained, asked = [True] * 4 + [False] * 2, [False] * 4 + [True] * 2
    found = {row["arm"]: row for row in rows(gradients, trained, asked, SETTINGS)}
    steps = statistics.steps_of(range(4), 2, SETTINGS.seed)
    signs = torch.stack([gradients["trloo"][step].mean(0).sign() for step in steps])
    naive = float((signs @ gradients["last turn"][4:].T).mean()) * SETTINGS.rate
    assert found["trloo"]["gain, last turn"]["value"] == pytest.approx(naive, abs=1e-5)


def kept_file(folder: Path, groups: Sequence[Group], **changes: Any) -> Path:
    folder.mkdir()
    lines = [
        each.line(f"{number}_{session}_0") | changes
        for number, group in enumerate(groups)
        for session, each in enumerate(group)
    ]
    (folder / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_kept_rollouts_are_read_as_they_were(tmp_path):
    groups = made_groups(3)
    assert read_groups(kept_file(tmp_path / "kept", groups)) == groups
    with pytest.raises(DataError, match=r"1\.jsonl, line 1: this is no rollout as .*record_dir"):
        read_groups(kept_file(tmp_path / "cut", groups, responses=[1]))
    with pytest.raises(DataError, match=r"holds no groups of rollouts: name a folder .*or leave --rollouts out"):
        read_groups(tmp_path)


def test_rollouts_of_other_weights_are_told_by_their_distance():
    model, (group,) = small_model(), made_groups(1)
    assert distance(model, group, 1.0) is None
    own = tuple(log_probs(model, group[0], 1.0).tolist())
    near = Rollout(group[0].prompt, group[0].response, group[0].mask, group[0].turns, group[0].kept, own)
    far = Rollout(near.prompt, near.response, near.mask, near.turns, near.kept, tuple(each - 0.5 for each in own))
    assert distance(model, (near,), 1.0) == pytest.approx(0.0, abs=1e-6)
    assert distance(model, (far,), 1.0) == pytest.approx(0.5, abs=1e-6)


def test_answers_in_a_batch_are_those_of_each_prompt_alone():
    model, rng = small_model(), Random(1)
    prompts = [[rng.randrange(2, 12) for _ in range(length)] for length in (1, 4, 7)]
    params = [{"max_tokens": most, "stop_token_ids": [1], "temperature": 1e-4} for most in (2, 5, 6)]
    found = answers(model, prompts, params, padding=0)
    for prompt, own, tokens in zip(prompts, params, found, strict=True):
        ids, alone = list(prompt), []
        while len(alone) < own["max_tokens"] and (not alone or alone[-1] != 1):
            alone.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            ids.append(alone[-1])
        assert tokens == alone


def audit(*words: object, exit_code: int = 0) -> str:
    return " ".join(invoked(*words, exit_code=exit_code, command=app).output.split())


@pytest.mark.slow
def test_what_cannot_be_audited_is_refused_in_a_sentence(tmp_path):
    out = ("--out", tmp_path / "out")
    few = audit(*out, "--groups", "9", exit_code=2)
    assert "--groups is 9 and a step has 8 (data.train_batch_size): ask for at least 16" in few
    mean = audit(*out, "actor_rollout_ref.actor.loss_agg_mode=token-mean", exit_code=2)
    assert "loss_agg_mode is token-mean, but the audit sums tokens up: leave it" in mean
    none = audit(*out, f"quickstart_dir={tmp_path}/none", exit_code=2)
    assert "none/model, which holds no config.json: `verl-kernel data quickstart` makes one" in none
    small_model().save_pretrained(tmp_path / "model")
    missing = audit(*out, f"quickstart_dir={tmp_path}", exit_code=2)
    assert "train.parquet does not exist: name a parquet file of tasks" in missing
    kept = kept_file(tmp_path / "kept", made_groups(3))
    few = audit(*out, "--rollouts", kept, f"quickstart_dir={tmp_path}", exit_code=2)
    assert "holds 3 groups and a step has 8 (data.train_batch_size): let the training keep more steps" in few
    one = (f"quickstart_dir={tmp_path}", "data.train_batch_size=1")
    far = kept_file(tmp_path / "far", made_groups(3), rollout_log_probs=[-9.0] * 8)
    moved = audit(*out, "--rollouts", far, *one, exit_code=2)
    assert "holds rollouts that other weights than" in moved
    assert "let the training keep samples at a rate near 0" in moved
    assert not [*(tmp_path / "out").glob("*")]


@pytest.mark.slow
def test_kept_rollouts_of_a_training_are_audited(tmp_path):
    small_model().save_pretrained(tmp_path / "model")
    kept, out = kept_file(tmp_path / "kept", made_groups(6)), tmp_path / "out"
    said = audit(
        "--out", out, "--rollouts", kept, f"quickstart_dir={tmp_path}", "data.train_batch_size=2"
    )  # fmt: skip
    assert "gradients of 6 of 6 groups" in said
    assert "| estimator | SNR of a step of 2 | cosine |" in said
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]
    assert [line.get("arm") for line in lines] == [*arms.ARMS, None]
    assert lines[-1]["groups"] == 6
    assert (out / "audit.md").read_text().splitlines()[0].startswith("| estimator |")
