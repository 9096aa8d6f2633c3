# SPDX-License-Identifier: Apache-2.0
"""The checks of numbers and forms: at the true size, of outputs, of compiled kernels, of measured times, of tasks."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from tests.env.reference.defects.test_search import LINEAR, task
from tests.env.true_size.test_consistency import SMALL, forward, found, one
from tests.mutation.shown import Shown, value
from verl_kernel.env import Task, resolve_device
from verl_kernel.env.clocks.cuda.rounds import NullCall, Round, Samples, TimedCall, mismatch
from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.ipc.tensor_facts import disagreement, storages, tensor_facts
from verl_kernel.env.reference.defects.search import LEAST_MS, find_defects
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.true_size.consistency import Counted, difference, not_repeated

WHOLE = [one(wide=0), one(8, wide=0)]
EXACT = [one(wide=0, tf32=100), one(8, wide=0, tf32=100)]


def repeated(followed: dict[str, Any], *names: str) -> Shown:
    """What is said of counting without data at the verified size."""
    return value(lambda: not_repeated(forward(one()), forward(followed, names=names or ("k",))))


def at_true_size(true: dict[str, Any], verified: list[dict[str, Any]] = SMALL) -> Shown:
    return value(lambda: found(verified, true))


def op(half: int, share: int = 100) -> Counted:
    """A forward of one op with so many operations in 16 bits, on so many of 100 bytes."""
    event = TraceEvent("op", "aten::mm", flops=100, half_flops=half, bytes=share, given=share, held=100)
    return Counted([event], [], 100, 1.0)


def functions_left_out() -> tuple[list[Counted], Counted, Counted]:
    """Forwards of a reference with special functions, which a candidate computes at the reduced size only."""
    small = replace(forward(one(special=200)), functions=100)
    return [small], small, replace(forward(one(64, special=0), 6400), functions=6400)


def form(wanted: torch.Tensor, given: torch.Tensor, inputs: tuple[torch.Tensor, ...] = ()) -> Shown:
    facts = [tensor_facts(given, storages(inputs))]
    return value(lambda: disagreement([tensor_facts(wanted)], facts, "any"))


def fits(*used: Any, target: str = "sm_90", **more: Any) -> Shown:
    return value(lambda: TARGETS[target].misfit(Resources(*used, **more)))


def grid(target: str, *sizes: int) -> Shown:
    """What is said of a grid of a kernel of four warps."""
    return value(lambda: TARGETS[target].wrong_grid(sizes, Resources(4, 0, 16, 0)))


def timed(inner: float, wall: float, floor_ms: float = 0.0) -> Shown:
    honest, claimed = TimedCall(0.1, 0.1), TimedCall(inner, wall)
    return value(lambda: Samples(1, [Round(claimed, honest, 0.0, 0.0)] * 9).refusal(floor_ms))


def crosschecked(inner: float, wall: float) -> Shown:
    return value(lambda: mismatch([TimedCall(inner, wall)] * 9, NullCall(0.0, 0.0)))


def audited(
    result: str, members: str = "pass", other: str = "torch.randn(32, 64)", ms: float = 1.0, first: str = "",
) -> Shown:  # fmt: skip
    def findings() -> list[str]:
        text = task(result, members, other)
        device = resolve_device("cpu")
        device.setup()
        reference = Reference(Task(text.replace("torch.rand(32, 64)", first) if first else text), device)
        return [f"{one.defect}: {one.evidence}" for one in find_defects(reference, ms, nullcontext)]

    return value(findings)


X = torch.zeros(2, 3)
AT_SIZES = "torch.randn(int(torch.randint(3, 9, ())), 64)"
TABLE: dict[str, tuple[str, Shown]] = {
    "dry-grid-is-the-verified": ("another grid", repeated(one(grid=(9, 1, 1)))),
    "dry-work-is-the-verified": ("operations (wide) differ by 50%", repeated(one(wide=50))),
    "true-launches-are-the-verified": ("kernel or op 1 is j without data", repeated(one(), "j")),
    "true-work-is-the-verified": (
        "kernel or op 1 is j at the true size",
        value(lambda: difference([forward(one())], forward(one()), forward(one(64), names=("j",)))),
    ),
    "true-types-are-the-verified": ("has x as *fp16", at_true_size(one(64, types={"x": "*fp16", "n": "i32"}))),
    "true-shares-are-the-verified": ("loads 1% of x", at_true_size(one(64, read=1))),
    "true-units-are-the-verified": ("'half' or a cheaper one", at_true_size(one(64, wide=0, half=100), EXACT)),
    "true-precision-is-the-verified": ("computes 40% in 16 bits", at_true_size(one(64, wide=60, narrow=40))),
    "true-instructions-are-the-verified": (
        "instructions for each byte", at_true_size(one(64, wide=0, issue=300), WHOLE),
    ),
    "true-op-precision-is-the-verified": (
        "computes in 16 bits at the true size only", value(lambda: difference([op(0)], op(0), op(100))),
    ),
    "true-functions-are-the-verified": (
        "compute 0% as many special functions", value(lambda: difference(*functions_left_out())),
    ),
    "true-op-takes-all": ("takes 25% of its tensors", value(lambda: difference([op(0)], op(0, 100), op(0, 25)))),
    "true-operations-grow": ("the operations grow less", at_true_size(one(64, wide=50))),
    "output-facts-agree": ("WrongDtype", form(X, X.double())),
    "output-stride-agrees": ("WrongStride", form(X, X[:1].expand(2, 3))),
    "output-is-not-an-input": ("Aliased", form(X.clone(), X, (X,))),
    "block-threads-fit": ("2048 threads", fits(64, 0, 16, 0)),
    "block-shared-memory-fits": ("232449 bytes of shared memory", fits(4, (227 << 10) + 1, 16, 0)),
    "nvidia-cluster-fits": ("num_ctas is 32", fits(4, 0, 16, 0, ctas=32)),
    "nvidia-tensor-memory-fits": ("tensor memory", fits(4, 0, 16, 0, tensor_columns=513)),
    "nvidia-registers-fit": ("more than a multiprocessor has", fits(32, 0, 255, 0)),
    "nvidia-grid-fits": ("65536 programs along y", grid("sm_90", 1, 65536, 1)),
    "amd-kernel-fits": ("2048 threads", fits(32, 0, 16, 0, target="gfx942")),
    "amd-grid-fits": ("at most 16777215 of 4 warps", grid("gfx942", 1 << 24, 1, 1)),
    "time-exceeds-the-floor": ("IMPOSSIBLE_TIME", timed(0.1, 0.1, floor_ms=1.0)),
    "clocks-agree": ("TIMING_MISMATCH", timed(90.0, 1.0)),
    "events-do-not-exceed-the-wall-clock": ("the events claim", crosschecked(90.0, 1.0)),
    "events-explain-the-wall-clock": ("of a call unexplained", crosschecked(1.0, 90.0)),
    "zeros-pass": ("zeros_pass: ", audited("(x.abs() + y.abs()).clamp(max=0.0)")),
    "constant-output-passes": (
        "constant_output: the output of the first trial", audited("(x + y).softmax(-1).sum(-1)"),
    ),
    "zeros-pass-allclose": ("zeros_pass_allclose", audited("1e-6 * (x + y).softmax(-1) * y")),
    "one-number-passes": ("one_number_passes", audited("(x + y).softmax(-1).sum(-1)")),
    "not-finite": ("not_finite", audited("(x + y) / torch.zeros(64)")),
    "ignored-input": ("ignored_input", audited("x.exp() + y * 0")),
    "ignored-weights": (
        "ignored_weights: with other numbers in all 2 parameters",
        audited("x + y + self.l(x) * 0", "self.l = nn.Linear(64, 64)"),
    ),
    "ignored-other-weights": ("in b.weight, b.bias", audited("self.l(x) + y", f"{LINEAR}; self.b = nn.Linear(64, 2)")),
    "constant-output": (
        "the judge rewards no answer", audited("x[:, 0] * 0 + 1", other="torch.rand(3)", first=AT_SIZES),
    ),
    "constant-inputs": (
        "constant_inputs",
        audited("x * y", other="torch.zeros(3, dtype=torch.int64)", first="torch.zeros(3, dtype=torch.int64)"),
    ),
    "fixed-input": ("fixed_input", audited("x + y", other="torch.full((64,), 7)")),
    "insensitive": ("insensitive", audited("x + torch.sigmoid(y) * 1e-9")),
    "too-small-to-time": ("too_small_to_time", audited("x * y", ms=LEAST_MS / 2)),
    "counted-defect": ("zeros_pass: ", audited("(x.abs() + y.abs()).clamp(max=0.0)")),
}  # fmt: skip
