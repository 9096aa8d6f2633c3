# SPDX-License-Identifier: Apache-2.0
"""What a run asks, judges and writes down, with a scripted model and scripted judges."""

import io
from random import Random

import pytest
from rich.console import Console

from tests.bench.scripted_run import Judges, Scripted, down, judged, played, program, suite_of
from verl_kernel.bench import session
from verl_kernel.bench.models.answers import ModelAnswer
from verl_kernel.bench.records import TURNS, read_run
from verl_kernel.bench.scores import score_run
from verl_kernel.bench.session import RunProgress
from verl_kernel.env import EvalError, EvalStatus
from verl_kernel.errors import EndpointError, TaskError
from verl_kernel.reward.profiling import ProfilingReward, profiling_reward
from verl_kernel.rollout.feedback import format_feedback

WRONG, LOST = judged(EvalStatus.INCORRECT, correctness=False), judged(EvalStatus.INFRA_ERROR)
FULL = ModelAnswer(failure="context_overflow")


async def test_turns_see_the_talk_and_earn_what_training_pays(tmp_path):
    model, judges = Scripted(), Judges([WRONG, judged(speedup=1.5)])
    turns, progress = await played(tmp_path, suite_of("a"), model, judges, turns=3, feedback_chars=360)
    _, second, third = model.asked
    assert [message["role"] for message in third.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert third.messages[1]["content"] == program("a = (0, 1)")
    assert third.messages[2]["content"] == second.messages[2]["content"] == format_feedback(turns[0].result, 360)
    assert [turn.reward for turn in turns] == [0.0, *(profiling_reward(turn.result) for turn in turns[1:])]
    assert turns[1].reward > 0
    assert (turns[1].code, turns[1].completion) == ("a = (0, 2)\n", program("a = (0, 2)"))
    assert [turn.shown for turn in turns] == [(), (1,), (1, 2)]
    assert (turns[2].prompt_tokens, turns[2].completion_tokens) == (10, 5)
    assert (progress.notes, progress.shortened) == ([False, True, True], 0)


async def test_a_bench_pays_by_the_reward_that_it_is_given(tmp_path):
    coverage_only = ProfilingReward(correct_weight=0.0, speedup_weight=0.0)
    verdicts = [judged(speedup=3.0, time_coverage=0.1), judged(speedup=1.0, time_coverage=0.9), judged(), judged()]
    shown = {}
    for name, reward in (("default", None), ("coverage", coverage_only)):
        options = {"reward": reward, "turns": 3, "context": "top_w", "window": 1}
        turns, _ = await played(tmp_path / name, suite_of("a"), Scripted(), Judges(verdicts), **options)
        assert [turn.reward for turn in turns] == [profiling_reward(turn.result, reward) for turn in turns]
        shown[name] = turns[2].shown
    assert shown == {"default": (1,), "coverage": (2,)}


async def test_every_answer_has_a_seed_that_repeats(tmp_path):
    seeds = []
    for name in ("one", "two"):
        model = Scripted()
        await played(tmp_path / name, suite_of("a", "b"), model, Judges(), samples=2, turns=2)
        seeds.append({(q.item.task.task_id, q.sample, q.turn): q.seed for q in model.asked})
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0].values())) == 8
    other = Scripted()
    await played(tmp_path / "three", suite_of("a", "b"), other, Judges(), samples=2, turns=2, seed=1)
    assert not {q.seed for q in other.asked} & set(seeds[0].values())


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (ModelAnswer("I do not know."), "no_code"),
        (ModelAnswer("```python\nx = 1", is_cut=True), "too_long"),
        (ModelAnswer(failure="malformed"), "malformed"),
        (ModelAnswer(failure="too_long", is_cut=True), "too_long"),
    ],
)
async def test_an_answer_without_a_program_is_counted(tmp_path, answer, failure):
    judges = Judges()
    turns, _ = await played(tmp_path, suite_of("a"), Scripted({"a": [answer]}), judges, turns=2)
    assert [turn.failure for turn in turns] == [failure, None]
    assert turns[0].result.status is EvalStatus.REJECTED_STATIC
    assert turns[0].result.error.stage == "extract"
    assert sum(judges.sources.values()) == 1


async def test_a_program_in_an_answer_that_was_cut_is_judged(tmp_path):
    model = Scripted({"a": [ModelAnswer(program("x = 1") + " and more", is_cut=True)]})
    (turn,), _ = await played(tmp_path, suite_of("a"), model, Judges())
    assert (turn.failure, turn.code) == (None, "x = 1\n")


async def test_a_prompt_without_room_ends_the_trajectory_and_no_other(tmp_path):
    model = Scripted({"a": [ModelAnswer(program("x = 1")), FULL]})
    turns, progress = await played(tmp_path, suite_of("a", "b"), model, Judges(), turns=3)
    assert [turn.failure for turn in turns if turn.task_id == "a"] == [None, "context_overflow"]
    assert len([turn for turn in turns if turn.task_id == "b"]) == 3
    assert progress.shortened == 1


async def test_a_rebuilt_prompt_without_room_shows_fewer_turns(tmp_path):
    def fits_one(question):
        return FULL if len(question.messages) > 3 else ModelAnswer(program("x = 1"))

    verdicts = [judged(speedup=speedup) for speedup in (1.0, 3.0, 2.0)]
    model = Scripted({"a": [fits_one] * 4})
    turns, _ = await played(tmp_path, suite_of("a"), model, Judges(verdicts), turns=4, context="top_w", window=2)
    assert [turn.shown for turn in turns] == [(), (1,), (2,), (2,)]
    assert [turn.failure for turn in turns] == [None] * 4


async def test_a_window_decides_what_is_shown(tmp_path):
    verdicts = [judged(speedup=speedup) for speedup in (3.0, 1.0, 2.0)]
    shown = {}
    for context in ("last", "best_window", "top_w"):
        options = {"turns": 4, "context": context, "window": 2}
        turns, _ = await played(tmp_path / context, suite_of("a"), Scripted(), Judges(verdicts), **options)
        shown[context] = turns[3].shown
    assert shown == {"last": (2, 3), "best_window": (1, 2), "top_w": (1, 3)}


async def test_no_turn_begins_once_the_tokens_are_spent(tmp_path):
    turns, progress = await played(tmp_path, suite_of("a"), Scripted(), Judges(), turns=5, total_tokens=30)
    assert len(turns) == 2
    assert progress.shortened == 3


async def test_a_lost_turn_is_judged_again_but_not_asked_again(tmp_path):
    suite = suite_of("a")
    turns, progress = await played(tmp_path, suite, Scripted(), Judges([judged(), LOST]), turns=3)
    assert [turn.result.status.value for turn in turns] == ["ok", "infra_error"]
    assert turns[1].reward == 0.0
    assert progress.shortened == 1
    judges, second = Judges(), Scripted()
    turns, _ = await played(tmp_path, suite, second, judges, turns=3)
    assert [turn.result.status.value for turn in turns] == ["ok"] * 3
    assert list(judges.sources) == ["a = (0, 2)\n", "a = (0, 3)\n"]
    assert [question.turn for question in second.asked] == [3]


async def test_an_unjudgeable_task_is_lost_without_asking(tmp_path):
    model, unfit = Scripted(), TaskError("reference a cannot serve as a task: it raises")
    turns, _ = await played(tmp_path, suite_of("a"), model, Judges([unfit] * 9), samples=9, turns=2, requests=1)
    said = EvalError(stage="reference", type="TaskError", message="reference a cannot serve as a task: it raises")
    assert [turn.result.error for turn in turns] == [said] * 9
    assert all(turn.result.status is EvalStatus.INFRA_ERROR and turn.reward == 0.0 for turn in turns)
    assert all(turn.result.task_hash == turn.task_hash for turn in turns)
    assert len(model.asked) <= 3  # those that were under way


async def test_requests_and_judges_overlap_and_both_are_bounded(tmp_path):
    model, judges = Scripted(pause=0.01), Judges(pause=0.01)
    names = [f"t{number}" for number in range(12)]
    turns, _ = await played(tmp_path, suite_of(*names), model, judges, num_judges=2, turns=2, requests=3)
    assert len(turns) == 24
    assert (model.most, judges.most) == (3, 2)


async def test_a_failing_endpoint_ends_the_run_and_keeps_results(tmp_path):
    suite = suite_of("a", "b", "c")
    with pytest.raises(EndpointError):
        await played(tmp_path, suite, Scripted({"c": [down]}, pause=0.001), Judges(), turns=2, requests=1)
    before = read_run(tmp_path)[1]
    assert 0 < len(before) < 6
    model = Scripted()
    turns, _ = await played(tmp_path, suite, model, Judges(), turns=2)
    assert turns[: len(before)] == before
    assert len(turns) == 6
    assert len(model.asked) == 6 - len(before)


async def test_scores_do_not_depend_on_the_order_of_answers(tmp_path):
    verdicts = [judged(speedup=speedup) for speedup in (1.1, 1.3, 1.7, 2.9, 0.3, 7.1)]
    await played(tmp_path, suite_of("c", "a", "b"), Scripted(), Judges(verdicts), samples=2, turns=2)
    scores, lines = score_run(tmp_path)[1], (tmp_path / TURNS).read_text().splitlines(keepends=True)
    for seed in range(5):
        Random(seed).shuffle(lines)
        (tmp_path / TURNS).write_text("".join(lines))
        assert score_run(tmp_path)[1] == scores
        (tmp_path / "tasks.jsonl").unlink(missing_ok=True)
        scores = score_run(tmp_path)[1] if seed == 0 else scores


async def test_verdicts_are_read_back_as_they_were_written(tmp_path):
    """A trajectory that goes on in another process tells the model what this one would have."""
    trials = {"passed": 0, "total": 2, "max_abs": float("inf")}
    verdict = judged(EvalStatus.INCORRECT, correctness=False, trials=trials)
    model = Scripted()
    turns, _ = await played(tmp_path, suite_of("a"), model, Judges([verdict]), turns=2)
    assert model.asked[1].messages[2]["content"] == format_feedback(turns[0].result, 800)


def test_the_time_left_follows_from_this_runs_pace_alone(monkeypatch):
    clock, told = [1000.0], io.StringIO()
    monkeypatch.setattr(session.time, "monotonic", lambda: clock[0])
    with RunProgress("turns", 100, completed=40, console=Console(file=told, width=200)) as shown:
        assert shown.line == "40 of 100 turns, 0 correct"
        clock[0] += 20.0
        shown.note(True)
        shown.note(False)
        assert shown.line == "42 of 100 turns, 1 correct, about 10 min left"
        shown.shorten(50)
        assert shown.line == "42 of 50 turns, 1 correct, about 80 s left"
        assert told.getvalue() == ""
        clock[0] += 11.0
        shown.note(True)
    assert told.getvalue() == "43 of 50 turns, 2 correct, about 72 s left\n"
