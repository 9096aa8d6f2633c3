# SPDX-License-Identifier: Apache-2.0
"""Where the special trials of an evaluation lie, files of `kernelgym.trial_choice`, and surveys, which run all."""

import hashlib
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env import KINDS, EvalStatus, GymOptions, Task, TrialChoice
from verl_kernel.env.judge.trials.plan import TrialPlan
from verl_kernel.env.pool.verdict_cache import verdict_key
from verl_kernel.env.reference.kinds import ENDS
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import ConfigError

OPTIONS = GymOptions(device="cpu", static_check="off", run_timeout_s=4.0)
TASK = Task(REFERENCE, task_id="task")
SECRETS = [hashlib.sha256(bytes([number])).digest() for number in range(200)]


def places(plan, kind):
    return [number for number, other in enumerate(plan.kinds) if other == kind]


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12))
def test_the_ablation_lies_between_varied_and_another_trial(secret, total):
    plan = TrialPlan.draw(secret, total)
    assert plan.total == total
    assert 0 <= plan.inspected < total
    assert plan.switched is None if total == 1 else 1 <= plan.switched < total
    if total <= 2:
        assert plan.kinds == (("drawn",), ("drawn", "large"))[total - 1]
        assert plan.ablated == total - 1
        return
    (varied,), (large,) = places(plan, "varied"), places(plan, "large")
    assert 1 <= varied <= plan.ablated <= total - 2
    assert 1 <= large < total


@given(st.binary(min_size=32, max_size=32), st.tuples(*[st.integers(1, 5)] * len(KINDS)))
def test_a_chosen_plan_has_the_chosen_kinds_and_the_same_places(secret, numbers):
    counts = dict(zip(KINDS, numbers, strict=True))
    plan = TrialPlan.chosen(secret, counts)
    assert Counter(plan.kinds) == counts
    assert plan.kinds[0] == "drawn"
    assert 1 <= places(plan, "varied")[0] <= plan.ablated <= plan.total - 2
    assert 0 <= plan.inspected < plan.total
    assert 1 <= plan.switched < plan.total


@pytest.mark.parametrize("make", [lambda secret: TrialPlan.draw(secret, 5), None], ids=["draw", "chosen"])
def test_no_place_can_be_counted_on(make):
    make = make or (lambda secret: TrialPlan.chosen(secret, dict.fromkeys(KINDS, 1)))
    plans = [make(secret) for secret in SECRETS]
    ablated = Counter(plan.ablated for plan in plans)
    assert set(ablated) == {1, 2, 3}
    assert max(ablated.values()) < 100
    for kind in ("varied", "large", *ENDS):
        at = Counter(number for plan in plans for number in places(plan, kind))
        assert len(at) >= (2 if kind == "varied" else 4)
        assert max(at.values()) < 160
    assert {plan.inspected for plan in plans} == set(range(5))
    assert {plan.switched for plan in plans} == set(range(1, 5))


@given(st.binary(min_size=32, max_size=32), st.integers(4, 12))
def test_a_plan_has_both_ends_where_it_has_room(secret, total):
    kinds = Counter(TrialPlan.draw(secret, total).kinds)
    assert [kinds["varied"], kinds["large"], kinds["negative"] + kinds["positive"]] == [1, 1, min(2, total - 3)]
    assert max(kinds["negative"], kinds["positive"]) == 1


def test_where_one_end_has_room_it_is_not_always_the_same():
    assert {kind for secret in SECRETS for kind in TrialPlan.draw(secret, 4).kinds} == set(KINDS)


def test_the_judges_own_plan_has_not_changed():
    """Digest of the plans of 200 secrets and 12 totals: verdicts with a seed must repeat over versions."""
    lines = []
    for secret in SECRETS:
        for total in range(1, 13):
            plan = TrialPlan.draw(secret, total)
            special = [number for number, kind in enumerate(plan.kinds) if kind == "varied"]
            lines.append(f"{total} {special} {places(plan, 'large')} {plan.ablated} {plan.inspected}")
    assert (
        hashlib.sha256("\n".join(lines).encode()).hexdigest()
        == "863c08ef0c8ce0b24bef0d603392ece30ef44167b37849d9af06a81d39feb5bb"
    )


COUNTS = {"drawn": 2, "varied": 1, "large": 3, "negative": 1, "positive": 1}


def written(tmp_path, kinds, **other):
    file = tmp_path / "choice.json"
    file.write_text(json.dumps({"format": 1, "tasks": {TASK.fingerprint: {"kinds": kinds}}} | other))
    return str(file)


def test_a_choice_is_by_reference_and_not_for_validation(tmp_path):
    choice = TrialChoice.read(written(tmp_path, COUNTS))
    assert choice.of(EvalRequest(TASK, HONEST)) == COUNTS
    assert choice.of(EvalRequest(Task(REFERENCE, task_id="renamed"), HONEST)) == COUNTS
    assert choice.of(EvalRequest(TASK, HONEST, validate=True)) is None
    assert choice.of(EvalRequest(Task(f"{REFERENCE}\n"), HONEST)) is None
    assert TrialChoice.read(None).of(EvalRequest(TASK, HONEST)) is None


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({"drawn": 5}, "it must give each of drawn, varied, large, negative, positive one trial or more"),
        ({**COUNTS, "large": 0}, "it must give each of"),
        ({**COUNTS, "negative": 0}, "it must give each of"),
        ({**COUNTS, "large": 1.5}, "it must give each of"),
        ({**COUNTS, "large": True}, "it must give each of"),
        ({**COUNTS, "seed": 1}, "it must give each of"),
        (["drawn"], "it must give each of"),
        ({**COUNTS, "large": 100}, "more than 64 trials"),
    ],
)
def test_no_kind_can_be_left_out(tmp_path, kinds, words):
    with pytest.raises(ConfigError, match=f"kernelgym.trial_choice: .*{words}"):
        TrialChoice.read(written(tmp_path, kinds))


def test_a_file_of_something_else_is_refused(tmp_path):
    for path in (written(tmp_path, COUNTS, format=2), str(tmp_path), str(tmp_path / "none.json")):
        with pytest.raises(ConfigError, match="write one with `verl-kernel aces`"):
            TrialChoice.read(path)


def test_verdicts_are_shared_only_where_judged_alike():
    request = EvalRequest(TASK, HONEST, step=1)
    held_out = EvalRequest(TASK, HONEST, validate=True, step=1)
    assert verdict_key(request) == verdict_key(held_out) == verdict_key(request, True)
    assert verdict_key(held_out, True) != verdict_key(request, True)


SURVEYED = ("drawn", "large", "varied", "drawn")
SECRET = bytes(range(32))
CUT = HONEST.replace("tl.maximum(v, 0.0)", "tl.minimum(tl.maximum(v, 0.0), 40.0)")
"""Right but for large numbers."""


def crashing_on_large(end):
    return candidate(f"if x.abs().max() > 30:\n    {end}\nreturn self.right(x, y)", "import os, time")


@pytest.mark.processes
def test_one_failed_trial_leaves_out_no_other(judge):
    assert judge.survey(TASK, HONEST, SURVEYED, SECRET) == [EvalStatus.OK] * 4
    assert [outcome.value for outcome in judge.survey(TASK, CUT, SURVEYED, SECRET)] == ["ok", "incorrect", "ok", "ok"]
    for end, status in (("raise ValueError", "runtime_error"), ("os._exit(3)", "crash")):
        outcomes = judge.survey(TASK, crashing_on_large(end), SURVEYED, SECRET)
        assert [outcome.value for outcome in outcomes] == ["ok", status, "ok", "ok"]


@pytest.mark.processes
def test_a_timeout_ends_a_survey_of_its_candidate(judge):
    late = judge.survey(TASK, crashing_on_large("time.sleep(60)"), SURVEYED, SECRET)
    assert late == [EvalStatus.OK, EvalStatus.TIMEOUT, None, None]
    assert judge.survey(TASK, "import nothing", SURVEYED, SECRET) == [EvalStatus.LOAD_ERROR] * 4


@pytest.mark.processes
def test_a_survey_repeats_with_its_secret(judge):
    before = judge.evaluate(TASK, HONEST).model_dump(exclude={"stage_seconds"})
    assert judge.survey(TASK, CUT, ("large",) * 3, SECRET) == [EvalStatus.INCORRECT] * 3
    assert judge.evaluate(TASK, HONEST).model_dump(exclude={"stage_seconds"}) == before


@pytest.mark.processes
def test_a_choice_holds_for_training_on_its_tasks_only(tmp_path, judge_with):
    counts = {**COUNTS, "drawn": 1}
    judge = judge_with(trial_choice=written(tmp_path, counts))
    other = Task(f"{REFERENCE}\n# another", task_id="other")
    chosen = judge.judge(EvalRequest(TASK, HONEST))
    assert chosen.rewarded
    assert chosen.env["trial_kinds"] == counts
    assert chosen.trials.passed == chosen.trials.total == 7
    assert chosen.decoy_kernel is False
    for request in (EvalRequest(TASK, HONEST, validate=True), EvalRequest(other, HONEST)):
        own = judge.judge(request)
        assert own.trials.total == 5
        assert "trial_kinds" not in own.env
    wrong = judge.judge(EvalRequest(TASK, CUT))
    assert wrong.status is EvalStatus.INCORRECT
    assert wrong.trials.passed < 7
