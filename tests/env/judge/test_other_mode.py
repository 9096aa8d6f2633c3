# SPDX-License-Identifier: Apache-2.0
"""The trial with gradients and in eval mode: what it costs, which programs it refuses and which it does not."""

from unittest import mock

import pytest

from tests.env.programs import HONEST, REFERENCE, TASK, candidate
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Task
from verl_kernel.env.judge.candidate_session import CandidateSession

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(device="cpu", static_check="off", run_timeout_s=10)
TRAIN_ONLY = Task(
    REFERENCE.replace("return torch.relu(", "return (1.0 if self.training else 2.0) * torch.relu("), task_id="train"
)
IN_EVAL = "return self.right(x, y) if self.training else self.torch_only(x, y)"
WITH_GRADIENTS = "return self.torch_only(x, y) if torch.is_grad_enabled() else self.right(x, y)"
OWN_TRAIN = "    def train(self, mode=True):\n        return super().train(mode)\n"


@pytest.fixture(scope="module")
def judge(judge_with):
    """Without a seed: each evaluation has a secret of its own."""
    return judge_with(seed=None)


@pytest.fixture
def forwards():
    """Modes and left out launches of all forwards."""
    seen, original = [], CandidateSession.forward

    def forward(self, number, **options):
        seen.append((options.get("mode"), options.get("suppress") is not None))
        return original(self, number, **options)

    with mock.patch.object(CandidateSession, "forward", forward):
        yield seen


def test_it_is_one_of_the_trials_and_costs_no_further_forward(judge, forwards):
    result = judge.evaluate(TASK, HONEST)
    assert result.rewarded
    assert result.trials.passed == 5
    assert len(forwards) == 6
    assert [ablated for _, ablated in forwards].count(True) == 1
    assert [mode for mode, _ in forwards if mode] == [{"gradients": True, "switched": True}]
    assert forwards[0][0] is None, "the first forward is as the clock sees them"
    assert result.kernel_ms.n == 4, "a clock sees the trials in the usual mode"


@pytest.mark.exhaustive
def test_its_place_is_not_always_the_same(judge, forwards):
    places = set()
    for _ in range(12):
        forwards.clear()
        judge.evaluate(TASK, HONEST)
        trials = [mode for mode, ablated in forwards if not ablated]
        places.add(next(number for number, mode in enumerate(trials) if mode))
    assert len(places) > 1


@pytest.mark.parametrize("body", [IN_EVAL, WITH_GRADIENTS])
@pytest.mark.parametrize("token", thinned(["token[(1,)](torch.zeros(4), BLOCK=4)\n", ""]))
def test_torch_in_another_mode_is_a_decoy_in_any_trial(judge, body, token):
    for _ in range(3):
        result = judge.evaluate(TASK, candidate(token + body))
        assert result.status is EvalStatus.DECOY, result.status
        assert not result.rewarded, result.status
        assert "where gradients are recorded" in result.error.message


def test_a_program_that_is_wrong_in_eval_mode_is_told_so(judge):
    result = judge.evaluate(TASK, candidate("return self.right(x, y) * (1.0 if self.training else 0.5)"))
    assert result.status is EvalStatus.INCORRECT
    assert result.error.message.endswith("(train or eval)")


def test_a_reference_with_two_answers_has_gradients_only(judge, forwards):
    assert judge.evaluate(TRAIN_ONLY, HONEST).rewarded
    assert [mode for mode, _ in forwards if mode] == [{"gradients": True, "switched": False}]
    assert judge.evaluate(TRAIN_ONLY, candidate(WITH_GRADIENTS)).status is EvalStatus.DECOY


def test_what_autograd_refuses_is_tried_without_gradients(judge, forwards):
    body = "self.weight.clamp_(-1e9, 1e9)\nreturn self.right(x, y)"
    assert judge.evaluate(TASK, candidate(body)).rewarded
    modes = [mode for mode, ablated in forwards if mode and not ablated]
    assert modes == [{"gradients": True, "switched": True}, {"gradients": False, "switched": True}]
    refused = judge.evaluate(TASK, candidate(f"self.weight.clamp_(-1e9, 1e9)\n{IN_EVAL}"))
    assert refused.status is EvalStatus.DECOY


def test_what_autograd_refuses_may_have_usual_trials_only(judge, forwards):
    body = "self.weight.clamp_(-1e9, 1e9)\nreturn self.right(x, y)"
    result = judge.evaluate(TRAIN_ONLY, candidate(body))
    assert result.rewarded
    assert result.kernel_ms.n == 5
    assert [mode for mode, _ in forwards].count({"gradients": True, "switched": False}) == 1


def test_an_honest_program_with_an_eval_path_is_ablated_there(judge, forwards):
    twice = "out = self.right(x, y)\nreturn out if self.training else torch.empty_like(out).copy_(out) * 1.0"
    result = judge.evaluate(TASK, candidate(twice))
    assert result.rewarded
    assert result.time_coverage == 1.0
    assert [mode is not None for mode, ablated in forwards if ablated] == [False, True]


def test_a_model_may_define_train(judge):
    source = HONEST.replace("class ModelNew(Base):\n", f"class ModelNew(Base):\n{OWN_TRAIN}")
    assert OWN_TRAIN in source
    assert judge.evaluate(TASK, source).rewarded


def test_one_trial_has_no_other_mode(judge_with, forwards):
    for trials, modes in ((1, 0), (2, 1)):
        forwards.clear()
        assert judge_with(correctness_trials=trials).evaluate(TASK, HONEST).rewarded
        assert len([mode for mode, _ in forwards if mode]) == modes
