# SPDX-License-Identifier: Apache-2.0
"""The checks of numbers and forms: at the true size, of outputs, of compiled kernels, of measured times, of tasks."""

from contextlib import nullcontext
from typing import Any

import torch

from tests.env.reference.defects.test_search import LINEAR, TASK
from tests.env.true_size.test_consistency import SMALL, forward, found, one
from tests.mutation.shown import Shown, value
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.clocks.cuda.rounds import NullCall, Round, Samples, TimedCall, mismatch
from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.ipc.tensor_facts import disagreement, storages, tensor_facts
from verl_kernel.env.reference.defects.search import LEAST_MS, find_defects
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.true_size.consistency import Counted, difference, not_repeated

WHOLE = [one(wide=0), one(8, wide=0)]
EXACT = [one(wide=0, tf32=100), one(8, wide=0, tf32=100)]


def repeated(followed: dict[str, Any], *names: str) -> Shown:
    """What is said of counting without data at the verified size."""
    return value(lambda: not_repeated(forward(one()), forward(followed, names=names or ("k",))))


def at_true_size(true: dict[str, Any], verified: list[dict[str, Any]] = SMALL) -> Shown:
    """What is said of the true size."""
    return value(lambda: found(verified, true))


def op(half: int) -> Counted:
    """A forward of one op with so many operations in 16 bits."""
    return Counted([TraceEvent("op", "aten::mm", flops=100, half_flops=half)], [], 100, 1.0)


def form(wanted: torch.Tensor, given: torch.Tensor, inputs: tuple[torch.Tensor, ...] = ()) -> Shown:
    """What is said of an output's form."""
    facts = [tensor_facts(given, storages(inputs))]
    return value(lambda: disagreement([tensor_facts(wanted)], facts, "any"))


def fits(*used: Any, target: str = "sm_90", **more: Any) -> Shown:
    """What is said of a compiled kernel."""
    return value(lambda: TARGETS[target].misfit(Resources(*used, **more)))


def grid(target: str, *sizes: int) -> Shown:
    """What is said of a grid of a kernel of four warps."""
    return value(lambda: TARGETS[target].wrong_grid(sizes, Resources(4, 0, 16, 0)))


def timed(inner: float, wall: float, floor_ms: float = 0.0) -> Shown:
    """What is said of measured times."""
    honest, claimed = TimedCall(0.1, 0.1), TimedCall(inner, wall)
    return value(lambda: Samples(1, [Round(claimed, honest, 0.0, 0.0)] * 9).refusal(floor_ms))


def crosschecked(inner: float, wall: float) -> Shown:
    """What is said of a call by both clocks."""
    return value(lambda: mismatch([TimedCall(inner, wall)] * 9, NullCall(0.0, 0.0)))


def audited(
    result: str, members: str = "pass", other: str = "torch.randn(32, 64)", ms: float = 1.0, first: str = "",
) -> Shown:  # fmt: skip
    """What an audit says of a task."""

    def findings() -> list[str]:
        text = TASK.format(forward=result, members=members, other=other)
        device = resolve_device("cpu")
        device.setup()
        reference = Reference(Task(text.replace("torch.rand(32, 64)", first) if first else text), device)
        return [f"{one.defect}: {one.evidence}" for one in find_defects(reference, ms, nullcontext)]

    return value(findings)


X = torch.zeros(2, 3)
AT_SIZES = "torch.randn(int(torch.randint(3, 9, ())), 64)"
TABLE: dict[str, tuple[str, Shown]] = {
    "true_size.consistency:not_repeated": ("another grid", repeated(one(grid=(9, 1, 1)))),
    "true_size.consistency:not_repeated 2": ("operations (wide) differ by 50%", repeated(one(wide=50))),
    "true_size.consistency:_sequence": ("kernel or op 1 is j without data", repeated(one(), "j")),
    "true_size.consistency:difference": (
        "kernel or op 1 is j at the true size",
        value(lambda: difference([forward(one())], forward(one(64), names=("j",)))),
    ),
    "true_size.consistency:_types": ("has x as *fp16", at_true_size(one(64, types={"x": "*fp16", "n": "i32"}))),
    "true_size.consistency:_shares": ("loads 1% of x", at_true_size(one(64, read=1))),
    "true_size.consistency:_units": ("'half' or a cheaper one", at_true_size(one(64, wide=0, half=100), EXACT)),
    "true_size.consistency:_narrowed": ("computes 40% in 16 bits", at_true_size(one(64, wide=60, narrow=40))),
    "true_size.consistency:_executed": ("instructions for each byte", at_true_size(one(64, wide=0, issue=300), WHOLE)),
    "true_size.consistency:_ops": (
        "computes in 16 bits at the true size only",
        value(lambda: difference([op(0)], op(100))),
    ),
    "true_size.consistency:_operations": ("the operations grow less", at_true_size(one(64, wide=50))),
    "ipc.tensor_facts:disagreement": ("WrongDtype", form(X, X.double())),
    "ipc.tensor_facts:disagreement 2": ("WrongStride", form(X, X[:1].expand(2, 3))),
    "ipc.tensor_facts:disagreement 3": ("Aliased", form(X.clone(), X, (X,))),
    "compilation.target:Target.too_large": ("2048 threads", fits(64, 0, 16, 0)),
    "compilation.target:Target.too_large 2": ("232449 bytes of shared memory", fits(4, (227 << 10) + 1, 16, 0)),
    "compilation.nvidia:NvidiaTarget.misfit": ("num_ctas is 32", fits(4, 0, 16, 0, ctas=32)),
    "compilation.nvidia:NvidiaTarget.misfit 2": ("tensor memory", fits(4, 0, 16, 0, tensor_columns=513)),
    "compilation.nvidia:NvidiaTarget.misfit 3": ("more than a multiprocessor has", fits(32, 0, 255, 0)),
    "compilation.nvidia:NvidiaTarget.wrong_grid": ("65536 programs along y", grid("sm_90", 1, 65536, 1)),
    "compilation.amd:AmdTarget.misfit": ("2048 threads", fits(32, 0, 16, 0, target="gfx942")),
    "compilation.amd:AmdTarget.wrong_grid": ("at most 16777215 of 4 warps", grid("gfx942", 1 << 24, 1, 1)),
    "clocks.cuda.rounds:Samples.refusal": ("IMPOSSIBLE_TIME", timed(0.1, 0.1, floor_ms=1.0)),
    "clocks.cuda.rounds:Samples.refusal 2": ("TIMING_MISMATCH", timed(90.0, 1.0)),
    "clocks.cuda.rounds:mismatch": ("the events claim", crosschecked(90.0, 1.0)),
    "clocks.cuda.rounds:mismatch 2": ("of a call unexplained", crosschecked(1.0, 90.0)),
    "reference.defects.search:idle_answers": ("zeros_pass: ", audited("(x.abs() + y.abs()).clamp(max=0.0)")),
    "reference.defects.search:idle_answers 2": (
        "constant_output: the output of the first trial",
        audited("(x + y).softmax(-1).sum(-1)"),
    ),
    "reference.defects.search:idle_answers 3": ("zeros_pass_allclose", audited("1e-6 * (x + y).softmax(-1) * y")),
    "reference.defects.search:_one_number": ("one_number_passes", audited("(x + y).softmax(-1).sum(-1)")),
    "reference.defects.search:_not_finite": ("not_finite", audited("(x + y) / torch.zeros(64)")),
    "reference.defects.search:_ignored_input": ("ignored_input", audited("x.exp() + y * 0")),
    "reference.defects.search:_ignored_weights": (
        "ignored_weights: with other numbers in all 2 parameters",
        audited("x + y + self.l(x) * 0", "self.l = nn.Linear(64, 64)"),
    ),
    "reference.defects.search:_ignored_weights 2": (
        "in b.weight, b.bias",
        audited("self.l(x) + y", f"{LINEAR}; self.b = nn.Linear(64, 2)"),
    ),
    "reference.defects.search:_known": (
        "the judge rewards no answer",
        audited("x[:, 0] * 0 + 1", other="torch.rand(3)", first=AT_SIZES),
    ),
    "reference.defects.search:_known 2": (
        "constant_inputs",
        audited("x * y", other="torch.zeros(3, dtype=torch.int64)", first="torch.zeros(3, dtype=torch.int64)"),
    ),
    "reference.defects.search:_known 3": (
        "fixed_input",
        audited("x + y", other="torch.full((64,), 7)"),
    ),
    "reference.defects.search:_known 4": ("insensitive", audited("x + torch.sigmoid(y) * 1e-9")),
    "reference.defects.search:_too_small": ("too_small_to_time", audited("x * y", ms=LEAST_MS / 2)),
    "reference.defects.search:finding": ("zeros_pass: ", audited("(x.abs() + y.abs()).clamp(max=0.0)")),
}
