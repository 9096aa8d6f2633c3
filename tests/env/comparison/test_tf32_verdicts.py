# SPDX-License-Identifier: Apache-2.0
"""Verdicts on fused kernels whose products are TF32's, simulated by cutting their factors to ten bits."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.env.gyms import pretended_judge
from tests.env.programs import HONEST, program, reference
from tests.env.programs import REFERENCE as PRODUCTLESS
from tests.gpu.products import EXACT, REFERENCE, SEVEN_BITS, TEN_BITS, candidate
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Judge, Task
from verl_kernel.env.comparison.tf32_tolerance import RUNS
from verl_kernel.env.reference.reference import Reference

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", correctness_trials=4, static_check="off")
TF32 = candidate(TEN_BITS)
HINT = 'tl.dot(..., input_precision="ieee")'


@pytest.fixture(scope="module")
def verdict(judge_with):
    def run(mode, source, text=REFERENCE, **options):
        return judge_with(float32=mode, **options).evaluate(Task(text), source)

    return run


def test_tritons_default_passes_in_tf32_and_not_in_ieee(verdict):
    accepted, refused = verdict("tf32", TF32), verdict("ieee", TF32)
    assert accepted.rewarded, accepted.error
    assert accepted.decoy_kernel is False, accepted.error
    assert accepted.trials.passed == 4, accepted.error
    assert accepted.trials.max_rel > 1e-4
    assert (refused.status, refused.error.type) == (EvalStatus.INCORRECT, "WrongValues")
    assert HINT in refused.error.message
    assert "kernelgym.float32 is tf32" in refused.error.message


def test_parity_accepts_it_where_its_own_tolerance_does_not(verdict):
    large = REFERENCE.replace("torch.randn(32, 128)", "30 * torch.randn(32, 128)")
    refused, accepted = (verdict(mode, TF32, large, tolerance="parity") for mode in ("ieee", "tf32"))
    assert refused.status is EvalStatus.INCORRECT
    assert HINT in refused.error.message
    assert accepted.rewarded


HALVES = """for i in range(K):
        total += (tl.load(x + m * K + i)[:, None] * tl.load(w + n * K + i)[None, :]).to(tl.float16)
    total = total"""
WRONG = {
    "seven bits": candidate(SEVEN_BITS),
    "seven bits of one factor": candidate(SEVEN_BITS.splitlines()[0]),
    "half precision": candidate("total = tl.zeros((M, N), tl.float16)").replace("total = tl.dot(left, right)", HALVES),
    "no bias": TF32.replace("+ tl.load(b + n)[None, :]", ""),
}


@pytest.mark.parametrize("name", thinned(WRONG, 4))
def test_what_tf32_does_not_explain_is_refused_in_both_modes(verdict, name):
    for mode in ("ieee", "tf32"):
        result = verdict(mode, WRONG[name])
        assert (result.status, result.error.type) == (EvalStatus.INCORRECT, "WrongValues"), (mode, result)
        assert HINT not in result.error.message


def test_a_replay_of_rounded_products_is_a_replay(verdict):
    body = "self.__dict__.setdefault('kept', self.fused(x)); return self.kept"
    result = verdict("tf32", candidate(TEN_BITS, body=body))
    assert (result.status, result.error.type) == (EvalStatus.HACKING, "ReplayedOutput")


def test_a_decoy_with_rounded_products_is_a_decoy(verdict):
    body = """token[(1,)](torch.empty(4), BLOCK=4)
        cut = lambda t: (t.view(torch.int32) & -8192).view(torch.float32)
        return torch.relu(cut(x) @ cut(self.linear.weight).T + self.linear.bias)"""
    result = verdict("tf32", candidate(body=body))
    assert (result.status, result.error.type) == (EvalStatus.DECOY, "LaunchIrrelevant")


SWITCHED = candidate(
    body="on = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32\n"
    "        off = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32\n"
    "        return self.fused(x) * (1.0 if {} else 2.0)",
    precision=', input_precision="ieee"',
)


@pytest.mark.parametrize(("mode", "condition"), [("ieee", "not off"), ("tf32", "on")])
def test_the_candidates_own_torch_ops_run_in_the_mode(verdict, mode, condition):
    assert verdict(mode, SWITCHED.replace("{}", condition)).status is EvalStatus.OK
    assert verdict(mode, SWITCHED.replace("{}", f"not ({condition})")).status is EvalStatus.INCORRECT


WEIGHT = "self.weight = nn.Parameter(torch.randn(16, 4, 3))"
CONVOLUTION = reference("F.conv1d(x, weight)", "torch.randn(2, 4, 18)", members=WEIGHT).replace(
    "        return F.",
    """        weight = self.weight
        if torch.backends.cudnn.allow_tf32:  # as cuDNN computes it on a GPU
            x, weight = ((t.view(torch.int32) & -8192).view(torch.float32) for t in (x, weight))
        return F.""",
)
EXACT_CONVOLUTION = program(
    """
@triton.jit
def convolve(x, w, out):
    b = tl.program_id(0)
    o, i = tl.arange(0, 16), tl.arange(0, 16)
    total = tl.zeros((16, 16), tl.float32)
    for c in range(4):
        for k in range(3):
            total += tl.load(w + o * 12 + c * 3 + k)[:, None] * tl.load(x + b * 72 + c * 18 + i + k)[None, :]
    tl.store(out + b * 256 + o[:, None] * 16 + i[None, :], total)
""",
    "out = torch.empty(2, 16, 16)\nconvolve[(2,)](x, self.weight, out)\nreturn out",
    members=WEIGHT,
)


@pytest.mark.parametrize("mode", ["ieee", "tf32"])
@pytest.mark.parametrize(("source", "text"), [(EXACT, REFERENCE), (EXACT_CONVOLUTION, CONVOLUTION)])
def test_what_is_exact_is_right_in_both_modes(verdict, mode, source, text):
    result = verdict(mode, source, text)
    assert result.status is EvalStatus.OK, result.error
    assert result.env["float32"] == mode


ZEROS = candidate(TEN_BITS, body="return self.fused(x) * 0")
IN_BFLOAT16 = REFERENCE.replace("torch.relu(self.linear(x))", "torch.relu(self.linear(x)).bfloat16()")


@pytest.mark.parametrize(("mode", "source", "text"), [
    ("tf32", EXACT, REFERENCE), ("ieee", EXACT, REFERENCE), ("tf32", ZEROS, REFERENCE), ("ieee", ZEROS, REFERENCE),
    ("tf32", HONEST.replace("tl.maximum(v, 0.0)", "v"), PRODUCTLESS),
    ("ieee", candidate(body="return (1.05 * self.fused(x)).bfloat16()"), IN_BFLOAT16),
])  # fmt: skip
def test_the_reference_runs_again_only_where_tf32_may_matter(verdict, monkeypatch, mode, source, text):
    monkeypatch.setattr(Reference, "room", lambda self, *arguments: pytest.fail("the reference was run again"))
    verdict(mode, source, text)


def test_each_run_of_the_reference_has_its_time_limit(judge_processes):
    """Together they may take longer than `reference_timeout_s`, which is no fault of the task."""
    guarded = []

    @contextmanager
    def guard():
        guarded.append(True)
        yield

    options = replace(OPTIONS, float32="tf32", correctness_trials=1, ablation=False)
    other = Judge(options, seed=5, guard=guard, processes=judge_processes)
    assert other.evaluate(Task(REFERENCE), TF32).correctness
    assert len(guarded) == 2 + 1 + RUNS  # preparation, trial, rounded towards zero and at random


@pytest.fixture(scope="module")
def measured():
    with pretended_judge(replace(OPTIONS, correctness_trials=2, run_timeout_s=1.0, float32="tf32")) as judge:
        yield lambda source: judge.evaluate(Task(REFERENCE), source)


def test_timed_outputs_have_the_room_too(measured):
    result = measured(TF32)
    assert result.status is EvalStatus.OK, result.error
    assert result.kernel_ms.n >= 10, result.error


def test_a_kernel_that_turns_to_seven_bits_when_timed(measured):
    body = "self.count = getattr(self, 'count', 0) + 1\n        "
    body += "return self.fused(x if self.count < 8 else x.bfloat16().float())"
    result = measured(candidate(TEN_BITS, body=body))
    assert result.status is EvalStatus.INCORRECT
    assert result.error.stage == "clock"
