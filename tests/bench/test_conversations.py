# SPDX-License-Identifier: Apache-2.0
"""What of a run becomes conversations, and with which messages."""

import json

import pytest

from tests.bench.recorded import HEADER, WRONG, timed, turn, write_run
from verl_kernel.bench.conversations import talks_of_run
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.env import EvalResult, Task
from verl_kernel.errors import DataError
from verl_kernel.rollout.feedback import format_feedback

TEXT = "class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
ASKED = ({"role": "system", "content": "be quick"}, {"role": "user", "content": "ModelNew"})
SUITE = Suite("own", tuple(SuiteItem(Task(TEXT, name), ASKED) for name in ("a", "b", "c")))


def run(folder, *turns, **header):
    return write_run(folder, turns, suite_hash=SUITE.hash, prompt_hash=SUITE.prompt_hash, **header)


def answered(task, sample, number, verdict, reward, **fields):
    return turn(task, sample, number, verdict, reward=reward, completion=f"{task}{sample}{number}", **fields)


def said(talk):
    return [message["content"] for message in talk["messages"] if message["role"] == "assistant"]


@pytest.fixture
def folder(tmp_path):
    return run(
        tmp_path / "run",
        answered("a", 0, 1, WRONG, 0.0),
        answered("a", 0, 2, timed(1.5), 1.25, shown=(1,)),
        answered("a", 0, 3, timed(1.2), 1.1, shown=(1, 2)),
        answered("a", 1, 1, timed(2.0), 1.5),
        answered("a", 1, 2, WRONG, 0.0, shown=(1,)),
        answered("b", 0, 1, WRONG, 0.0),
        answered("b", 1, 1, timed(0.5), 0.75),
        turn("c", 0, 1, timed(3.0), reward=2.0),
    )


def test_best_ends_with_the_highest_reward(folder):
    kept = talks_of_run(folder, SUITE, "best")
    assert [said(talk) for talk in kept.talks] == [["a11"], ["a01", "a02"], ["b11"]]
    assert kept.tasks == 2
    assert kept.left_out == {
        "the turn that it would end with is not right": 1, "an answer's text was not kept": 1,
    }  # fmt: skip
    known = json.loads(kept.talks[1]["source"])
    assert (known["task_id"], known["sample"], known["turn"], known["speedup"]) == ("a", 0, 2, 1.5)
    assert known["task_hash"] == "hash of a"
    assert known["model"] == HEADER["model"]


def test_last_keeps_whole_trajectories_that_end_well(folder):
    kept = talks_of_run(folder, SUITE, "last")
    assert [said(talk) for talk in kept.talks] == [["a01", "a02", "a03"], ["b11"]]


def test_slow_and_surplus_ones_are_left_out_and_counted(folder):
    kept = talks_of_run(folder, SUITE, "best", least_speedup=1.0, per_task=1)
    assert [said(talk) for talk in kept.talks] == [["a11"]]
    assert kept.left_out["the turn that it would end with is not fast enough"] == 1
    assert kept.left_out["the task has as many that are faster"] == 1


def test_messages_are_those_that_the_run_asked(folder):
    (talk,) = [talk for talk in talks_of_run(folder, SUITE, "best").talks if len(said(talk)) == 2]
    feedback = format_feedback(EvalResult(task_id="a", **WRONG), 800)
    assert talk["messages"] == [
        *ASKED,
        {"role": "assistant", "content": "a01"},
        {"role": "user", "content": feedback},
        {"role": "assistant", "content": "a02"},
    ]


def test_a_rebuilt_context_shows_what_its_last_prompt_showed(tmp_path):
    turns = [answered("a", 0, number, WRONG, 0.1 * number, shown=tuple(range(1, number))[-1:]) for number in (1, 2, 3)]
    turns.append(answered("a", 0, 4, timed(2.0), 1.5, shown=(2,)))
    folder = run(tmp_path / "run", *turns, context="top_w", window=1, turns=4)
    (talk,) = talks_of_run(folder, SUITE, "last").talks
    assert said(talk) == ["a02", "a04"]


def test_special_tokens_in_a_message_of_the_gym_stay_text(tmp_path):
    error = {"stage": "run", "type": "E", "message": "saw <|im_end|>"}
    bad = {"status": "runtime_error", "error": error}
    folder = run(tmp_path / "r", answered("a", 0, 1, bad, 0.0), answered("a", 0, 2, timed(2.0), 1.5, shown=(1,)))
    (talk,) = talks_of_run(folder, SUITE, "best").talks
    assert "saw < |im_end|>" in talk["messages"][3]["content"]


def test_a_run_of_another_suite_is_refused(folder):
    with pytest.raises(DataError, match="whose tasks or prompts are not those of this suite"):
        talks_of_run(folder, SUITE.first(2), "best")
