# SPDX-License-Identifier: Apache-2.0
"""A reference beside itself, through both processes."""

import pytest

from tests.env.programs import REFERENCE
from verl_kernel.env.conformance.aa import aa_options, as_candidate, judged_against_itself, same_program
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError, InfraError

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", correctness_trials=1)


def test_a_simulated_clock_finds_no_difference(judge_processes):
    with Judge(aa_options(OPTIONS), seed=1, processes=judge_processes) as judge:
        assert same_program(judge, Task(REFERENCE)) == 1.0
        result = judged_against_itself(judge, Task(REFERENCE))
        assert result.speedup_low == 1.0
        assert result.times == {}
        assert result.decoy_kernel


def test_a_judge_that_refuses_torch_alone_names_the_remedy(judge_processes):
    judge = Judge(OPTIONS, seed=1, processes=judge_processes)
    with pytest.raises(ConfigError, match="aa_options"):
        same_program(judge, Task(REFERENCE))


def test_a_reference_that_fails_beside_itself_is_our_failure(judge_processes):
    body = "return torch.relu(x * self.weight + y) * self.scale"
    late = REFERENCE.replace(body, f'{body} if type(self) is Model else {{}}["nothing"]')
    judge = Judge(aa_options(OPTIONS), seed=1, processes=judge_processes)
    with pytest.raises(InfraError, match="failed beside itself"):
        same_program(judge, Task(late))


def test_the_candidate_is_the_reference_by_another_name():
    task = Task(REFERENCE.replace("class Model(", "class Block("), entry_point="Block")
    names = {}
    exec(compile(as_candidate(task), "candidate", "exec"), names)
    assert names["BlockNew"].__mro__[1] is names["Block"]
    assert names["BlockNew"].forward is names["Block"].forward
