# SPDX-License-Identifier: Apache-2.0
"""From a fault in memory to a verdict, with real processes; and how the judge reads what a runner reports."""

from dataclasses import asdict, replace

import pytest

from tests.env.judge.test_judge import OPTIONS, sharing
from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env.devices.cpu.memory.findings import Finding
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.judge.memory_findings import described, with_reported
from verl_kernel.env.result import EvalResult, EvalStatus, MemoryFinding
from verl_kernel.env.task import Task
from verl_kernel.rollout.feedback import format_feedback

TASK = Task(REFERENCE, task_id="fused")
KERNELS = """
@triton.jit
def unmasked(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i) * tl.load(w + i % size) + tl.load(y + i)  # FAULT
    tl.store(out + i, tl.maximum(v, 0.0) * scale, mask=i < n)

@triton.jit
def spilling(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) * tl.load(w + i % size) + tl.load(y + i, mask=i < n)
    tl.store(out + i, tl.maximum(v, 0.0) * scale)  # FAULT

@triton.jit
def adding(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) * tl.load(w + i % size) + tl.load(y + i, mask=i < n)
    unused = tl.load(out + i, mask=i < n)  # FAULT
    tl.store(out + i, tl.maximum(v, 0.0) * scale, mask=i < n)
    tl.device_assert(tl.sum((unused == unused).to(tl.int32), 0) >= 0)

@triton.jit
def racing(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) * tl.load(w + i % size) + tl.load(y + i, mask=i < n)
    right = tl.maximum(v, 0.0) * scale
    wrong = tl.where(tl.arange(0, BLOCK) < BLOCK // 2, right, 7.0)
    tl.store(out + i, wrong, mask=i < n)  # FAULT
"""
COPIED = """
@triton.jit
def copied(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i))
"""
KINDS = {
    "unmasked": "out_of_bounds_load",
    "spilling": "out_of_bounds_store",
    "adding": "uninitialised_read",
    "racing": "race",
}


def program(kernel: str, around: str = "{}") -> str:
    """A candidate that is right but for the fault of its kernel."""
    grid, block = {"racing": (8, 128), "adding": (4, 128)}.get(kernel, (3, 256))
    call = f"{kernel}[({grid},)](x, self.weight, y, out, 512, 64, self.scale, BLOCK={block})"
    return candidate(f"out = torch.empty_like(x)\n{around.format(call)}\nreturn out", KERNELS)


def marked_line(source: str, kernel: str) -> int:
    lines = source.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"def {kernel}("))
    return next(number for number in range(first, len(lines)) if lines[number].endswith("# FAULT")) + 1


@pytest.fixture(scope="module")
def judges():
    with Judge(replace(OPTIONS, memory_checks="refuse"), seed=7) as refusing:
        others = {mode: sharing(refusing, replace(OPTIONS, memory_checks=mode), 7) for mode in ("record", "off")}
        yield {"refuse": refusing, **others}


@pytest.mark.processes
@pytest.mark.parametrize("kernel", KINDS)
def test_a_fault_is_unsafe_and_said_with_its_line(judges, kernel):
    source = program(kernel)
    result = judges["refuse"].evaluate(TASK, source)
    line = marked_line(source, kernel)
    assert result.status is EvalStatus.UNSAFE and not result.rewarded and result.correctness is False
    assert result.error.type == KINDS[kernel].title().replace("_", "")
    assert result.error.message.startswith(f"line {line}, in kernel {kernel}: ")
    first = result.memory_findings[0]
    assert (first.kind, first.kernel, first.line) == (KINDS[kernel], kernel, line)
    assert f"line {line}" in format_feedback(result, 360)


@pytest.mark.processes
@pytest.mark.parametrize("kernel", KINDS)
def test_recording_leaves_the_status_as_it_is_without_the_checks(judges, kernel):
    source = program(kernel)
    recorded, plain = (judges[mode].evaluate(TASK, source) for mode in ("record", "off"))
    assert recorded.status is plain.status and plain.memory_findings is None
    assert recorded.error == plain.error
    assert [item.kind for item in recorded.memory_findings] == [KINDS[kernel]]


@pytest.mark.processes
def test_out_of_bounds_stays_a_crash_without_the_checks(judges):
    result = judges["off"].evaluate(TASK, program("spilling"))
    assert result.status is EvalStatus.CRASH and result.error.type == "OutOfBounds"


@pytest.mark.processes
@pytest.mark.parametrize("kernel", ["unmasked", "spilling"])
def test_a_fault_that_the_program_catches_is_a_fault(judges, kernel):
    caught = "try:\n    {}\nexcept Exception:\n    out = self.right(x, y)"
    assert judges["refuse"].evaluate(TASK, program(kernel, caught)).status is EvalStatus.UNSAFE


@pytest.mark.processes
@pytest.mark.parametrize("mode", ["refuse", "record", "off"])
def test_an_honest_kernel_is_rewarded(judges, mode):
    result = judges[mode].evaluate(TASK, HONEST)
    assert result.rewarded and result.memory_findings == (None if mode == "off" else ())
    assert EvalResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.processes
def test_the_checks_change_nothing_else(judges):
    results = [judges[mode].evaluate(TASK, HONEST) for mode in ("refuse", "off")]
    dumped = [result.model_dump(exclude={"memory_findings", "stage_seconds"}) for result in results]
    assert dumped[0] == dumped[1]


@pytest.mark.processes
def test_a_buffer_filled_before_an_ablation_is_no_fault_after_it(judges):
    body = (
        "if not hasattr(self, 'kept'):\n    self.kept = torch.empty(8, 512)\n    self.calls = 0\n"
        "row = self.kept[self.calls % 8]\ncopied[(1,)](x, row, B=512)\nself.calls += 1\n"
        "again = torch.empty(8, 512)\n"
        "for number in range(min(self.calls, 8)):\n    copied[(1,)](self.kept[number], again[number], B=512)\n"
        "return self.right(again[(self.calls - 1) % 8].view(8, 64), y)"
    )
    result = judges["refuse"].evaluate(TASK, candidate(body, COPIED))
    assert result.memory_findings == (), result.error


WORKSPACE = """
class ModelNew(Base):
    def __init__(self, size, scale):
        super().__init__(size, scale)
        self.work = {made}

    def forward(self, x, y):
        copied[(1,)](self.work, self.work, B=512)
        return self.right(x, y)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("made", "status"),
    [
        ("torch.empty(512)", EvalStatus.UNSAFE),
        ("torch.zeros(512)", EvalStatus.OK),
        ("torch.nn.init.normal_(torch.empty(512))", EvalStatus.OK),
        ("torch.full_like(torch.empty(512), 2.0)", EvalStatus.OK),
        ("torch.tensor([1.0] * 512)", EvalStatus.OK),
        ("nn.Linear(64, 8).weight.detach()", EvalStatus.OK),
    ],
)
def test_memory_that_the_constructor_leaves_unwritten_is_known(judges, made, status):
    source = HONEST.split("class ModelNew")[0] + COPIED + WORKSPACE.format(made=made)
    result = judges["refuse"].evaluate(TASK, source)
    assert result.status is status, result.error


FOUND = asdict(Finding("race", "k", 3, "x", 5, (0, 0, 0), "load", 4, (1, 0, 0), "store"))


def test_what_a_runner_reports_is_read():
    found = with_reported([], {"memory": [FOUND]})
    assert found[0] == MemoryFinding(**FOUND)
    assert with_reported(found, {"memory": [{**FOUND, "offset": 6}]}) == found
    assert with_reported(found, {"failure": {}}) == found
    assert described(found[0])[1].startswith("line 3, in kernel k: a load (program (0, 0, 0)) and a store in line 4")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "beautiful"}, {"kernel": None}, {"kernel": "k" * 101}, {"line": 0}, {"line": "3"}, {"line": 2**40},
        {"offset": 2**64}, {"offset": 0.5}, {"program": [0, 0, 0, 0]}, {"program": [-1]},
        {"access": "jump"}, {"more": 1}, {"kernel": "\ud800"}, {"argument": 7}, {"other_line": True},
    ],
)  # fmt: skip
def test_what_no_runner_reports_is_refused(change):
    with pytest.raises(ValueError):
        with_reported([], {"memory": [{**FOUND, **change}]})


@pytest.mark.parametrize("memory", [None, {}, "none", [None], [[]], [FOUND] * 33])
def test_a_report_of_another_form_is_refused(memory):
    with pytest.raises(ValueError):
        with_reported([], {"memory": memory})


def test_an_answer_without_a_report_is_refused():
    with pytest.raises(LookupError):
        with_reported([], {"events": []})
