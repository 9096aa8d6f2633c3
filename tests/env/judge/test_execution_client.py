# SPDX-License-Identifier: Apache-2.0
"""What the end of an executing process means: a kernel's doing, or ours."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from verl_kernel.env import EvalError, EvalStatus, GymOptions
from verl_kernel.env.judge import execution_client
from verl_kernel.env.judge.compiling.code import CandidateCode
from verl_kernel.env.judge.execution_client import Execution, ExecutionDied
from verl_kernel.env.judge.native_trials import NativeTrials
from verl_kernel.env.judge.processes.runner import RunnerDied
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.errors import InfraError


class Dead:
    def __init__(self, by_kernel: bool) -> None:
        self._by_kernel = by_kernel

    def begin(self, **asked: object) -> None:
        raise ExecutionDied("it ended", by_kernel=self._by_kernel)


def trials(by_kernel: bool) -> NativeTrials:
    return NativeTrials(SimpleNamespace(execution=Dead(by_kernel)), {})


def session() -> SimpleNamespace:
    def verdict(status, kind, message):
        return Verdict(status, EvalError(stage="correctness", type=kind, message=message))

    return SimpleNamespace(secret=b"s", client=SimpleNamespace(verdict=verdict), forward=print)


@pytest.mark.parametrize(("code", "by_kernel"), [(-11, True), (-4, True), (-9, False), (1, False)])
def test_signals_are_a_kernels_doing_except_the_machines(code, by_kernel):
    with pytest.raises(ExecutionDied) as caught, execution_client._deaths():
        raise RunnerDied(code)
    assert caught.value.by_kernel is by_kernel


def test_a_kernel_that_ends_the_process_has_crashed():
    with pytest.raises(Verdict) as caught:
        trials(by_kernel=True).watched(session(), 0, "drawn", lambda: None)
    assert caught.value.status is EvalStatus.CRASH


def test_a_process_that_fails_by_itself_is_our_failure():
    with pytest.raises(InfraError):
        trials(by_kernel=False).watched(session(), 0, "drawn", lambda: None)


def test_a_process_that_could_not_be_forked_is_the_gyms_failure():
    forked = Future()
    forked.set_exception(InfraError("no process"))
    execution = Execution(lambda *args: forked, CandidateCode(None), "", GymOptions(device="cpu", memory_mb=64))
    with pytest.raises(InfraError, match="no process"):
        execution.started()
    execution.end()
    assert execution.link.fileno() == -1
