# SPDX-License-Identifier: Apache-2.0
"""A reduction that starts at a wrong value is refused, however long its rows, and one that starts right is not."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.env.programs import program, reference
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Task

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(device="cpu", run_timeout_s=60)
_KERNELS = """
@triton.jit
def times(a, b):
    return a * b

@triton.jit
def reduce(x, out, n, START: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
{kernel}
"""
_LAUNCH = "reduce[(x.shape[0],)](x, out, x.shape[-1], START={start}, BLOCK={block})"
_PER_ROW = "out = torch.empty(x.shape[0], dtype={dtype})\n{launch}\nreturn out"
_FOLD = """
    found = tl.full((BLOCK,), START, {type})
    for at in range(0, n, BLOCK):
        inside = at + c < n
        v = tl.load(x + row * n + at + c, mask=inside, other=START).to({type})
        found = {step}
    tl.store(out + row, {last})
"""
_PLACE = """
    found = tl.full((BLOCK,), START, tl.float32)
    place = tl.zeros((BLOCK,), tl.int64)
    for at in range(0, n, BLOCK):
        v = tl.load(x + row * n + at + c, mask=at + c < n, other=START)
        better = v > found
        place = tl.where(better, (at + c).to(tl.int64), place)
        found = tl.where(better, v, found)
    best = tl.max(found, 0)
    tl.store(out + row, tl.min(tl.where(found == best, place, n), 0))
"""
_ONLINE = """
    top = tl.full((), START, tl.float32)
    total = tl.zeros((), tl.float32)
    for at in range(0, n, BLOCK):
        v = tl.load(x + row * n + at + c, mask=at + c < n, other=-float("inf"))
        higher = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(v - higher), 0)
        top = higher
"""
_SCANNED = """
    for at in range(0, n, BLOCK):
        here = at + c < n
        v = tl.load(x + row * n + at + c, mask=here, other=START)
        w = tl.load(x + row * n + at + c - step, mask=here & (at + c >= step), other=START)
        tl.store(out + row * n + at + c, tl.maximum(v, w), mask=here)
"""
_SCAN = """
step = 1
while step < x.shape[-1]:
    out = torch.empty_like(x)
    reduce[(x.shape[0],)](x, out, x.shape[-1], step, START={start}, BLOCK={block})
    x, step = out, 2 * step
return x
"""
_INF, _FLOAT = 'float("inf")', "tl.float32"


@dataclass(frozen=True)
class Reduction:
    """A reduction of rows of any length, a kernel of it, and values that it may start from."""

    result: str
    inputs: str
    kernel: str
    right: str
    wrong: tuple[str, ...]
    forward: str = _PER_ROW
    dtype: str = "torch.float32"

    def task(self, length: int) -> Task:
        return Task(reference(self.result, self.inputs.format(n=length)))

    def program(self, start: str, block: int) -> str:
        forward = self.forward.replace("{launch}", _LAUNCH).format(start=start, block=block, dtype=self.dtype)
        source = program(_KERNELS.format(kernel=self.kernel), forward)
        return source.replace("out, n, START", "out, n, step, START") if self.forward is _SCAN else source


def _fold(step: str, last: str, type_: str = _FLOAT) -> str:
    return _FOLD.format(step=step, last=last, type=type_)


_NORMAL = "torch.randn(4, {n})"
_BITS = "torch.rand(4, {n}) > 0.5"
_MAX, _MIN = _fold("tl.maximum(found, v)", "tl.max(found, 0)"), _fold("tl.minimum(found, v)", "tl.min(found, 0)")
_TOO_SMALL, _TOO_LARGE = ("0.0", "-100.0", "-30000.0"), ("0.0", "100.0", "30000.0")
_INTEGER_MAX = _fold("tl.maximum(found, v)", "tl.max(found, 0)", "tl.int32")
REDUCTIONS = {
    "max": Reduction("x.amax(-1)", _NORMAL, _MAX, f"-{_INF}", _TOO_SMALL),
    "max of integers": Reduction(
        "x.amax(-1)", "torch.randint(-1000, 1001, (4, {n}), dtype=torch.int32)", _INTEGER_MAX, "-2147483648",
        ("0", "-100"), dtype="torch.int32",
    ),
    "max of integers that do not repeat": Reduction(
        "x.amax(-1)", "(torch.randperm(4 * {n}, dtype=torch.int32) - 4 * {n} // 2).view(4, {n})",
        _INTEGER_MAX, "-2147483648", ("0",), dtype="torch.int32",
    ),
    "min": Reduction("x.amin(-1)", _NORMAL, _MIN, _INF, _TOO_LARGE),
    "argmax": Reduction("x.argmax(-1)", _NORMAL, _PLACE, f"-{_INF}", ("0.0",), dtype="torch.int64"),
    "prod": Reduction(
        "x.prod(-1)", "1 + torch.randn(4, {n}) / {n} ** 0.5 / 2", _fold("found * v", "tl.reduce(found, 0, times)"),
        "1.0", ("0.0", "1.01"),
    ),
    "any": Reduction("x.any(-1)", _BITS, _fold("tl.maximum(found, v)", "tl.max(found, 0) > 0", "tl.int32"), "0", ("1",),
                     dtype="torch.bool"),
    "all": Reduction("x.all(-1)", _BITS, _fold("tl.minimum(found, v)", "tl.min(found, 0) > 0", "tl.int32"), "1", ("0",),
                     dtype="torch.bool"),
    "logsumexp": Reduction(
        "x.logsumexp(-1)", _NORMAL, f"{_ONLINE}    tl.store(out + row, top + tl.log(total))", f"-{_INF}",
        ("0.0", "-100.0"),
    ),
    "cummax": Reduction("x.cummax(-1).values", _NORMAL, _SCANNED, f"-{_INF}", _TOO_SMALL, _SCAN),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(REDUCTIONS, 6))
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.one_of(st.integers(3, 300), st.integers(300, 100_000)), data=st.data())
def test_a_wrong_start_is_refused_and_the_right_one_is_not(judge, name, length, data):
    reduction, block = REDUCTIONS[name], data.draw(st.sampled_from([1024, 4096]))
    task = reduction.task(length)
    wrong = judge.evaluate(task, reduction.program(data.draw(st.sampled_from(reduction.wrong)), block))
    assert wrong.status is EvalStatus.INCORRECT, (wrong.status, wrong.trials)
    right = judge.evaluate(task, reduction.program(reduction.right, block))
    assert right.rewarded, (right.status, right.error, right.task_flags)
