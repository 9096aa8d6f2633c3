# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from verl_kernel.env import EvalError, EvalResult, EvalStatus, GymOptions, Task, Timing, Trials
from verl_kernel.env.conformance.programs import HONEST, REFERENCE
from verl_kernel.errors import DataError
from verl_kernel.rollout.tool_replies import public_options
from verl_kernel.tools.toolbox import Stated, Toolbox

TASK = Task(REFERENCE, task_id="t")


class Gym:
    def __init__(self, **given):
        self.given, self.asked = {"status": EvalStatus.OK, **given}, []

    async def evaluate(self, task, source, *, kernel="", validate=False, step=None):
        self.asked.append((task.task_id, source))
        return EvalResult(task_id=task.task_id, attempts=1, **self.given)


def tools(public=None, judges=None, submissions=2):
    return Toolbox([Stated(TASK, "the prompt")], public or Gym(), judges or Gym(), submissions)


def said(work):
    return asyncio.run(work)


def test_tasks_are_listed_and_shown():
    assert said(tools().list_tasks()) == "t"
    assert said(tools().get_task("t")) == "the prompt"


@pytest.mark.parametrize("tool", ["check", "run", "profile", "submit"])
def test_an_unknown_task_is_named(tool):
    with pytest.raises(DataError, match="there is no task 'u': list_tasks names them all"):
        said(getattr(tools(), tool)("u", HONEST))


@pytest.mark.parametrize("tool", ["check", "run", "profile"])
def test_a_trial_asks_the_public_judges_alone(tool):
    public, judges = Gym(), Gym()
    said(getattr(tools(public, judges), tool)("t", HONEST))
    assert (public.asked, judges.asked) == ([("t", HONEST)], [])


def test_a_submission_asks_the_other_judges_alone():
    public, judges = Gym(), Gym()
    assert "Verdict: ok" in said(tools(public, judges).submit("t", HONEST))
    assert (public.asked, judges.asked) == ([], [("t", HONEST)])


@pytest.mark.parametrize("status", [EvalStatus.INCORRECT, EvalStatus.DECOY, EvalStatus.HACKING, EvalStatus.UNSAFE])
def test_a_check_says_nothing_of_values(status):
    error = EvalError(stage="trial", type="Mismatch", message="expected 3.5, got 4.5")
    public = Gym(status=status, error=error, trials=Trials(passed=0, total=1, max_abs=1.0))
    assert said(tools(public).check("t", HONEST)) == "It is accepted, compiles and runs."


def test_a_check_says_why_a_program_does_not_run():
    error = EvalError(stage="compile", type="CompilationError", message="line 7: no such name")
    assert "line 7: no such name" in said(tools(Gym(status=EvalStatus.COMPILE_ERROR, error=error)).check("t", HONEST))


def test_submissions_are_counted_and_end():
    box, judges = tools(judges=(gym := Gym())), gym
    assert "1 of 2 submissions are left" in said(box.submit("t", HONEST))
    assert "0 of 2 submissions are left" in said(box.submit("t", HONEST))
    assert said(box.submit("t", HONEST)) == "All 2 submissions are spent: nothing was judged."
    assert len(judges.asked) == 2


def test_a_judge_that_failed_costs_no_submission():
    box = tools(judges=Gym(status=EvalStatus.INFRA_ERROR))
    for _ in range(4):
        assert "is not counted" in said(box.submit("t", HONEST))


@pytest.mark.parametrize("tool", ["check", "run", "profile", "submit"])
@pytest.mark.parametrize("source", [f"```python\n{HONEST}```", f"Here it is:\n```python\n{HONEST}```\nIt is fast."])
def test_a_program_may_stand_in_a_fence(tool, source):
    gym = Gym()
    said(getattr(tools(gym, gym), tool)("t", source))
    assert gym.asked == [("t", HONEST)]


def test_a_fence_in_a_programs_text_is_part_of_it():
    source, gym = f'"""```python\npass\n```"""\n{HONEST}', Gym()
    said(tools(gym).check("t", source))
    assert gym.asked == [("t", source)]


def test_a_text_that_no_judge_has_run_costs_no_submission():
    error = EvalError(stage="static", type="syntax", message="line 1: not valid Python")
    box = tools(judges=Gym(status=EvalStatus.REJECTED_STATIC, error=error))
    for _ in range(4):
        assert "2 of 2 submissions are left" in said(box.submit("t", "kernel.py"))


@pytest.mark.parametrize("tool", ["check", "run", "submit"])
def test_what_is_said_asks_for_a_call_and_not_for_an_answer(tool):
    gym = Gym(status=EvalStatus.COMPILE_ERROR, error=EvalError(stage="compile", type="E", message="no"))
    text = said(getattr(tools(gym, gym), tool)("t", HONEST))
    assert "Call check, run or submit with a whole program that defines ModelNew." in text
    assert "Answer with" not in text


def test_without_a_profile_the_reason_is_said():
    timing = Timing(median=1.0, p20=1.0, p80=1.0, mean=1.0, n=1)
    assert said(tools(Gym(kernel_ms=timing)).profile("t", HONEST)).startswith("There is no profile, ")


def test_public_judges_are_on_this_machine_with_one_trial():
    options = public_options(GymOptions(address="http://judges:8008", correctness_trials=5, num_judges=4))
    assert (options.address, options.correctness_trials, options.num_judges) == (None, 1, 1)
