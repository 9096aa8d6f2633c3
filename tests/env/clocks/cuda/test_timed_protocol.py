# SPDX-License-Identifier: Apache-2.0
"""A clock that talks to the runner, through real processes and the jail, on a device with memory of its own."""

import pytest

from tests.env.gyms import pretended_judge
from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env.clocks.cuda import rounds
from verl_kernel.env.conformance.aa import aa_options, judged_against_itself, same_program
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes
TURNS_WRONG = "count[0] += 1\nreturn self.right(x, y) if count[0] < 8 else torch.zeros_like(x)"


@pytest.fixture(scope="module", autouse=True)
def tolerance():
    """Let a busy host hide time: what counts as cheating is tested in test_crosscheck.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "JITTER_MS", 1e6)
        yield


@pytest.fixture(scope="module")
def evaluate():
    options = GymOptions(device="cpu", correctness_trials=2, static_check="off", run_timeout_s=3.0)
    with pretended_judge(options) as judge:
        yield lambda source: judge.evaluate(Task(REFERENCE), source)


@pytest.fixture(scope="module")
def aa_judge():
    with pretended_judge(aa_options(GymOptions(device="cpu", correctness_trials=1, run_timeout_s=10.0))) as judge:
        yield judge


def test_an_honest_kernel_is_timed_profiled_and_kept(evaluate):
    result = evaluate(HONEST)
    assert result.status is EvalStatus.OK, result.error
    assert result.timing_source == "cuda_event"
    assert 10 <= result.kernel_ms.n == result.reference_ms.n
    assert result.kernel_ms.median > 0
    assert result.hack_flags == ()
    assert set(result.times) == {"device", "latency"}
    assert result.env["timing"] == "device"
    chosen = result.times["device"]
    assert (result.speedup, result.speedup_low) == (chosen.speedup, chosen.speedup_low)
    assert (result.kernel_ms, result.reference_ms) == (chosen.kernel_ms, chosen.reference_ms)
    assert 0 < result.speedup_low <= result.speedup or abs(result.speedup - 1) <= 0.02
    assert result.env["forwards"] >= 1
    assert result.env["throttled"] is None
    assert EvalResult.model_validate_json(result.model_dump_json()) == result
    assert result.time_coverage == 1.0
    assert result.launches[0].name == "fused"
    assert result.env["gpu_name"] == "none"
    assert result.env["null_ms"] > 0
    assert "gpu_profile" not in result.env


@pytest.mark.parametrize(("body", "status", "error"), [
    (TURNS_WRONG, EvalStatus.INCORRECT, {"stage": "clock"}),
    ("out = self.right(x, y)\nx.zero_()\nreturn out", EvalStatus.INCORRECT, {"type": "InputsChanged"}),
    ("count[0] += 1\nwhile count[0] > 5: pass\nreturn self.right(x, y)", EvalStatus.TIMEOUT, {"stage": "clock"}),
    ("return self.torch_only(x, y)", EvalStatus.DECOY, {}),
])  # fmt: skip
def test_what_a_clock_finds(evaluate, body, status, error):
    """A kernel that turns wrong when it is timed, inputs that change although they are copies, a hang, and a decoy."""
    result = evaluate(candidate(body, "count = [0]"))
    assert result.status is status
    assert result.speedup is None or status is EvalStatus.DECOY
    assert {name: getattr(result.error, name) for name in error} == error


@pytest.mark.exhaustive
def test_a_device_that_takes_contexts_down_may_be_slow_at_it(evaluate):
    slow_end = "\n    def __del__(self):\n        time.sleep(6)\n"
    result = evaluate(candidate("return self.right(x, y)", "import time") + slow_end)
    assert result.status is EvalStatus.OK, result.error
    assert result.stage_seconds["exit"] > 6, result.error


@pytest.mark.exhaustive
def test_a_reference_is_timed_beside_itself(aa_judge):
    result = judged_against_itself(aa_judge, Task(REFERENCE))
    assert result.status is EvalStatus.OK
    assert set(result.times) == {"device", "latency"}
    assert same_program(aa_judge, Task(REFERENCE)) > 0


@pytest.mark.exhaustive
def test_remembering_last_answers_gains_nothing(evaluate):
    """Forwards of one request, and the two protocols, get inputs of their own: what is remembered is never asked."""
    body = """
for seen, out in past:
    if torch.equal(seen, x):
        return out
past.append((x.clone(), self.right(x, y)))
hits.append(1)
return past[-1][1]
"""
    result = evaluate(candidate(body, "past, hits = [], []"))
    assert result.status is EvalStatus.OK, result.error
    again = candidate(body.replace("        return out", "        return torch.zeros_like(x)"), "past, hits = [], []")
    assert evaluate(again).status is EvalStatus.OK  # had anything been asked twice, it would be wrong
