# SPDX-License-Identifier: Apache-2.0
from tests.reward.results import correct, failed
from verl_kernel.env import EvalStatus, Task
from verl_kernel.reward.judging import judge_answer, judge_program
from verl_kernel.reward.profiling import ProfilingReward, profiling_reward

TASK = Task("class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n", task_id="t")
PROGRAM = "x = 1\n"
ANSWER = f"Here.\n```python\n{PROGRAM}```"


class Judges:
    def __init__(self, result):
        self.result, self.asked = result, []

    async def __call__(self, task, source):
        self.asked.append((task, source))
        return self.result


async def test_the_program_of_an_answer_is_judged():
    judges = Judges(correct(2.0))
    judged = await judge_answer(TASK, ANSWER, judges)
    assert judges.asked == [(TASK, PROGRAM)]
    assert (judged.code, judged.result) == (PROGRAM, judges.result)


async def test_a_verdict_earns_by_the_reward_that_is_given():
    paid = ProfilingReward(speedup_weight=0.0)
    judged = await judge_answer(TASK, ANSWER, Judges(correct(2.0)), paid)
    assert judged.reward == profiling_reward(correct(2.0), paid) != profiling_reward(correct(2.0))


async def test_an_answer_without_a_program_is_not_sent_to_a_judge():
    judges = Judges(correct())
    judged = await judge_program(TASK, None, judges, ProfilingReward(uncompiled_penalty=0.25))
    assert judges.asked == []
    assert (judged.code, judged.result.status) == (None, EvalStatus.REJECTED_STATIC)
    assert judged.reward == -0.25


async def test_what_could_not_be_judged_earns_nothing():
    lost = failed("infra_error", correctness=None)
    judged = await judge_answer(TASK, ANSWER, Judges(lost), ProfilingReward(failure_penalty=1.0))
    assert judged.lost
    assert judged.reward == 0.0
