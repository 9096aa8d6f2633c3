# SPDX-License-Identifier: Apache-2.0
"""A model and judges that follow a script, for the decisions of a run; real ones are in test_bench_command."""

import asyncio
from collections import Counter

from verl_kernel.bench.models.answers import ModelAnswer
from verl_kernel.bench.models.endpoint import Sampling
from verl_kernel.bench.records import read_run
from verl_kernel.bench.request import BenchOptions, make_header
from verl_kernel.bench.store import Store
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.bench.trajectories import play_all
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Task
from verl_kernel.errors import EndpointError

REFERENCE = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"


def suite_of(*names, name="s"):
    tasks = (Task(f"{REFERENCE}x = {number}\n", task) for number, task in enumerate(names))
    return Suite(name, tuple(SuiteItem(one, ({"role": "user", "content": f"Write {one.task_id}."},)) for one in tasks))


def header_of(suite, options=None, **changes):
    given, facts = (suite, options or BenchOptions(), Sampling(), GymOptions()), {"source": "endpoint", "device": "cpu"}
    made = make_header(*given, model="m", versions={"torch": "2"}, **facts)
    return made.model_copy(update=changes)


def program(text):
    return f"Here.\n```python\n{text}\n```"


def judged(status=EvalStatus.OK, speedup=2.0, **facts):
    if status is EvalStatus.OK:
        facts = {"correctness": True, "decoy_kernel": False, "speedup": speedup, "timing_source": "simulated", **facts}
    return EvalResult(task_id="", status=status, **facts)


class Scripted:
    """Answers from `answers[task][turn - 1]`, or with a program that names the question."""

    clean = str

    def __init__(self, answers=None, pause=0.0):
        self.answers, self.pause, self.asked = answers or {}, pause, []
        self.now = self.most = 0

    async def check(self):
        pass

    async def answer(self, question):
        self.asked.append(question)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.pause)
        self.now -= 1
        name = question.item.task.task_id
        script = self.answers.get(name, [])
        if question.turn <= len(script):
            answer = script[question.turn - 1]
            return answer(question) if callable(answer) else answer
        return ModelAnswer(program(f"{name} = {question.sample, question.turn}"), prompt_tokens=10, completion_tokens=5)

    async def close(self):
        pass


class Judges:
    """Give verdicts from a list, then `ok`."""

    def __init__(self, verdicts=(), pause=0.0):
        self.verdicts, self.pause, self.sources = list(verdicts), pause, Counter()
        self.now = self.most = 0

    async def evaluate(self, task, source):
        self.sources[source] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.pause)
        self.now -= 1
        verdict = self.verdicts.pop(0) if self.verdicts else judged()
        if isinstance(verdict, Exception):
            raise verdict
        return verdict.model_copy(update={"task_id": task.task_id})


class Counted:
    def __init__(self):
        self.notes, self.shortened = [], 0

    def note(self, is_correct):
        self.notes.append(is_correct)

    def shorten(self, turns):
        self.shortened += turns


async def played(folder, suite, model, judges, num_judges=1, reward=None, header=None, **options):
    """Play what a folder lacks; return all its turns, and the progress."""
    options, progress = BenchOptions(**options), Counted()
    with Store(folder, header_of(suite, options, **(header or {})), suite) as store:
        jobs = [(item, sample) for item in suite.tasks for sample in range(options.samples)]
        await play_all(
            jobs, model, judges, store, options=options, num_judges=num_judges, progress=progress, reward=reward
        )
    return read_run(folder)[1], progress


def down(question):
    raise EndpointError("it does not answer")
