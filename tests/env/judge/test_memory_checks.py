# SPDX-License-Identifier: Apache-2.0
"""`kernelgym.memory_checks`: faults, races, reads of uninitialised memory, accesses that leave a launch's views."""

from collections.abc import Callable, Iterator

import pytest

from tests.env.programs import HONEST, REFERENCE, candidate, program, program_of, reference
from tests.tiers import thinned
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Judge, Task
from verl_kernel.env.judge.runner_client import ADDRESS
from verl_kernel.rollout.feedback import format_feedback

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(device="cpu", correctness_trials=3)
MODES = ["refuse", "record", "off"]


@pytest.fixture(scope="module")
def judges(judge_with: Callable[..., Judge]) -> Iterator[dict[str, Judge]]:
    yield {mode: judge_with(static_check="off", memory_checks=mode) for mode in MODES}


@pytest.fixture(scope="module")
def refusing(judge_with: Callable[..., Judge]) -> Judge:
    return judge_with(memory_checks="refuse")


@pytest.fixture(scope="module")
def recording(judge_with: Callable[..., Judge]) -> Judge:
    return judge_with(memory_checks="record")


FUSED = Task(REFERENCE, task_id="fused")
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
"""
OUTSIDE = ("unmasked", "spilling")


def faulty(kernel: str, around: str = "{}") -> str:
    """A candidate that is right but for the fault of its kernel."""
    call = f"{kernel}[(3,)](x, self.weight, y, out, 512, 64, self.scale, BLOCK=256)"
    return candidate(f"out = torch.empty_like(x)\n{around.format(call)}\nreturn out", KERNELS)


def marked_line(source: str, kernel: str) -> int:
    lines = source.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"def {kernel}("))
    return next(number for number in range(first, len(lines)) if lines[number].endswith("# FAULT")) + 1


@pytest.mark.parametrize("mode", thinned(MODES, 3))
@pytest.mark.parametrize("kernel", OUTSIDE)
def test_out_of_bounds_is_a_crash(judges, kernel, mode):
    source = faulty(kernel)
    result = judges[mode].evaluate(FUSED, source)
    assert (result.status, result.error.type) == (EvalStatus.CRASH, "CompiledOutOfBounds")
    line = marked_line(source, kernel)
    assert result.error.message.startswith(f"line {line}, in {kernel}, ")
    assert f"line {line}" in format_feedback(result, 360)


@pytest.mark.parametrize("kernel", thinned(OUTSIDE))
def test_a_fault_that_the_program_catches_is_a_fault(judges, kernel):
    caught = "try:\n    {}\nexcept Exception:\n    out = self.right(x, y)"
    assert judges["refuse"].evaluate(FUSED, faulty(kernel, caught)).status is EvalStatus.CRASH


def keeping(made: str) -> str:
    """A candidate that adds zero times what its constructor has kept."""
    kept = f"        self.kept = torch.{made}(1 << 20)[:512].view(8, 64)\n"  # pages of its own, which hold zeros
    init = f"class ModelNew(Base):\n    def __init__(self, *args):\n        super().__init__(*args)\n{kept}\n"
    return candidate("return self.right(x, y) + self.kept * 0").replace("class ModelNew(Base):\n", init)


@pytest.mark.parametrize(("made", "status"), [("empty", EvalStatus.INCORRECT), ("zeros", EvalStatus.OK)])
def test_what_the_constructor_leaves_unwritten_holds_no_number(judges, made, status):
    assert judges["off"].evaluate(FUSED, keeping(made)).status is status


def test_an_honest_kernel_has_the_same_result_in_every_mode(judges):
    results = {mode: judges[mode].evaluate(FUSED, HONEST) for mode in MODES}
    dumped = [result.model_dump(exclude={"memory_findings", "stage_seconds"}) for result in results.values()]
    assert results["refuse"].rewarded
    assert dumped[0] == dumped[1] == dumped[2]
    assert [results[mode].memory_findings for mode in MODES] == [(), (), None]
    assert EvalResult.model_validate_json(results["refuse"].model_dump_json()) == results["refuse"]


COPIED = """
@triton.jit
def copied(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i))
"""


def test_a_buffer_filled_before_an_ablation_is_no_fault(judges):
    body = (
        "if not hasattr(self, 'kept'):\n    self.kept = torch.empty(8, 512)\n    self.calls = 0\n"
        "row = self.kept[self.calls % 8]\ncopied[(1,)](x, row, B=512)\nself.calls += 1\n"
        "again = torch.empty(8, 512)\n"
        "for number in range(min(self.calls, 8)):\n    copied[(1,)](self.kept[number], again[number], B=512)\n"
        "return self.right(again[(self.calls - 1) % 8].view(8, 64), y)"
    )
    result = judges["refuse"].evaluate(FUSED, candidate(body, COPIED))
    assert result.memory_findings == (), result.error


TUNED = """
@triton.autotune([triton.Config({"TURNS": 0}), triton.Config({"TURNS": 100})], key=["n"])
@triton.jit
def tuned(x, o, n, B: tl.constexpr, TURNS: tl.constexpr):
    i = tl.arange(0, B)
    for turn in range(TURNS):
        tl.store(o + i, tl.load(x + i) + tl.program_id(0) + turn)
    i += tl.program_id(0) * B
    tl.store(o + i, tl.load(x + i))
"""


@pytest.mark.parametrize(("turns", "status"), [(0, EvalStatus.OK), (1, EvalStatus.UNSAFE)])
def test_races_are_sought_in_the_chosen_configuration(judges, turns, status):
    """Watching those that are tried only would take seconds of the candidate's time for each."""
    body = "o = torch.empty_like(x)\ntuned[(2,)](x, o, 512, B=256)\nreturn self.right(o, y)"
    source = TUNED.replace('"TURNS": 0', f'"TURNS": {turns}')
    result = judges["refuse"].evaluate(FUSED, candidate(body, source))
    assert result.status is status, result.error


TWICE = Task(reference("x + x", "torch.randint(0, 99, (8, 64))"), task_id="twice")
ADDING = program_of("""
@triton.jit
def adding(x, extra, out, n: tl.constexpr):
    place = tl.program_id(0) * n + tl.arange(0, n)
    more = tl.load(extra + place, mask={mask}, other=0)
    tl.store(out + place, 2 * tl.load(x + place) + tl.where(more > (1 << 60), 1, 0)){last}
def forward(self, x):
    out = torch.empty_like(x)
    extra = {extra}
    {before}
    adding[(8,)](x, extra, out, 64)
    return out
""")


def adding(*, mask="place >= 0", extra="torch.empty_like(x)", before="pass", last=""):
    """A candidate that also reads `extra`, of which it needs nothing."""
    return ADDING.format(mask=mask, extra=extra, before=before, last=last)


RACING = adding(
    extra="torch.zeros_like(x)",
    last="\n    tl.store(out, 1000 + tl.program_id(0))\n    tl.debug_barrier()\n    tl.store(out, 2 * tl.load(x))",
)
WRITTEN = {
    "zeroed": adding(before="extra.zero_()"),
    "by_slices": adding(before="extra[:4] = 1; extra[4:].fill_(2)"),
    "by_a_view": adding(before="extra.view(-1)[:512].copy_(x.view(-1))"),
    "by_out": adding(before="torch.add(x, 1, out=extra)"),
    "by_a_kernel": adding(before="adding[(8,)](x, x, extra, 64)"),
    "masked": adding(mask="place < 0"),
    "in_part": adding(mask="place < 256", before="extra[:4].zero_()"),
    "freed_before": adding(before="extra = None; extra = torch.zeros_like(x)"),
    "of_another_op": adding(extra="x * 3"),
}


def test_a_read_of_what_nobody_has_written_is_unsafe(refusing):
    result = refusing.evaluate(TWICE, adding(before="extra[1:].zero_()"))
    assert (result.status, result.error.type) == (EvalStatus.UNSAFE, "CompiledUnwritten"), result.error
    assert "line 10, in adding" in result.error.message
    assert "uninitialised memory" in result.error.message


def test_a_race_is_unsafe(refusing):
    result = refusing.evaluate(TWICE, RACING)
    assert (result.status, result.error.type) == (EvalStatus.UNSAFE, "CompiledRace"), result.error


@pytest.mark.parametrize(
    ("source", "kind", "line"), [(adding(), "uninitialised_read", 10), (RACING, "race", None)], ids=["read", "race"]
)
def test_what_is_recorded_costs_nothing(source, kind, line, recording):
    result = recording.evaluate(TWICE, source)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup > 0, result.error
    found = result.memory_findings[0]
    assert not ADDRESS.search(found.message)  # it is another one in every run
    assert (found.kind, found.kernel) == (kind, "adding")
    assert line in (found.line, None)
    assert found.message


def test_a_finding_in_a_kernel_with_a_long_name_is_recorded(recording):
    found = recording.evaluate(TWICE, RACING.replace("adding", "a" * 120)).memory_findings[0]
    assert (found.kind, found.kernel) == ("race", "a" * 100)


LARGE = program(
    """
SCRATCH = 160 << 20

@triton.jit
def noting(x, scratch, out, last, n: tl.constexpr):
    place = tl.program_id(0) * n + tl.arange(0, n)
    tl.store(out + place, 2 * tl.load(x + place))
    tl.store(scratch + last - {place}, (tl.program_id(0) + 1).to(tl.int8))

@triton.jit
def counting(x, counter, flag, out, n: tl.constexpr):
    place = tl.program_id(0) * n + tl.arange(0, n)
    is_set = tl.load(flag)
    tl.debug_barrier()
    ticket = tl.atomic_add(counter, 1)
    many = tl.where(is_set > 5, 1, 0)
    tl.store(out + place, 2 * tl.load(x + place, mask=place < 512) + many, mask=place < 512)
    if ticket == tl.num_programs(0) - 1:
        tl.store(flag, 1)
""",
    "out = torch.empty_like(x)\n{launch}\nreturn out",
)
NOTE = "noting[(8,)](x, torch.empty(SCRATCH, dtype=torch.int8), out, SCRATCH - 1, 64)"
COUNT = (
    "counting[({blocks},)](x, x.new_zeros(1, dtype=torch.int32), x.new_zeros(1, dtype=torch.int32), out, 64, "
    "num_warps={warps})"
)


def large(launch, place="tl.program_id(0)"):
    return LARGE.format(launch=launch, place=place)


def test_a_race_in_memory_that_is_watched_in_parts_is_found(refusing, recording):
    refused, recorded = (judge.evaluate(TWICE, large(NOTE, "0")) for judge in (refusing, recording))
    assert (refused.status, refused.error.type) == (EvalStatus.UNSAFE, "CompiledRace"), refused.error
    assert "in noting" in refused.error.message
    assert recorded.status is EvalStatus.OK, recorded.error
    assert "races_not_watched" not in recorded.env, recorded.error
    assert [found.kind for found in recorded.memory_findings] == ["race"]


@pytest.mark.exhaustive
def test_large_memory_without_a_race_is_paid(refusing):
    result = refusing.evaluate(TWICE, large(NOTE))
    assert result.rewarded, result.error
    assert "races_not_watched" not in result.env, result.error


def test_an_unwatchable_launch_is_not_paid(refusing, recording):
    source = large(COUNT.format(blocks=8200, warps=32))
    refused, recorded = refusing.evaluate(TWICE, source), recording.evaluate(TWICE, source)
    assert (refused.status, refused.error.type) == (EvalStatus.UNSAFE, "CompiledNotWatched"), refused.error
    reason = "what its 8200 blocks know of each other takes too many bytes; launch fewer"
    assert reason in refused.error.message
    assert recorded.status is EvalStatus.OK, recorded.error
    assert recorded.env["races_not_watched"] == [f"races: {reason}"]


def test_what_cannot_be_decided_is_paid_and_reported(refusing):
    result = refusing.evaluate(TWICE, large(COUNT.format(blocks=8, warps=1)))
    assert result.rewarded, result.error
    assert "one of several blocks" in result.env["races_not_watched"][0]


DOUBLE = Task(reference("x * 2", "torch.randn(8, 64)"), task_id="double")
DOUBLING = program(
    """
@triton.jit
def double(x, o, x_row, o_row, n: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, 128)
    {fore}
    value = tl.load(x + row * x_row + c, mask=c < {read}, other=0.0) + 0.0 * {more}
    tl.store(o + row * o_row + c, tl.where(c < n, value * 2, 0.0), mask=c < {written})
""",
    "{before}\ndouble[(8,)](x, o, {steps}, 64)\nreturn o",
)
ROOM = "room = torch.zeros(1024); o = room[:512].view(8, 64)"
FILLED = "room = torch.zeros(1024); room[:512] = x.view(-1); x = room[:512].view(8, 64); o = torch.empty_like(x)"
WIDE = "wide = torch.zeros(8, 128); wide[:, :64] = x; x, o = wide[:, :64], torch.empty_like(x)"
SHIFTED = "room = torch.zeros(600); o = room[8:520].view(8, 64)"
BOTH = "both = torch.cat([x, x]); x = both[:8]; "
FORE = "tl.store(o - 8 + c, 0.0, mask=c < 8 - 8 * row)"


def doubling(before="o = torch.empty_like(x)", steps="64, 64", read="64", written="64", more="0.0", fore="pass"):
    return DOUBLING.format(before=before, steps=steps, read=read, written=written, more=more, fore=fore)


BEYOND = {
    "writes behind a view": doubling(ROOM, written="64 + 2 * (row == 7)"),
    "writes before a view": doubling(SHIFTED, fore=FORE),
    "reads behind the last row": doubling(WIDE, steps="128, 64", read="128"),
    "reads another chunk": doubling(BOTH + "o = torch.empty_like(x)", read="64 + (row == 7)"),
    "reads before a row": doubling(BOTH + "x = both[8:]; o = torch.empty_like(x)", more="tl.load(x - 1)"),
}
INSIDE = {
    "a view": doubling(ROOM),
    "the storage": doubling(),
    "a view in the middle": doubling(SHIFTED),
    "columns of a wider tensor": doubling(WIDE, steps="128, 64"),
    "between the columns of a wider tensor": doubling(WIDE, steps="128, 64", read="128 - 64 * (row == 7)"),
    "both chunks": doubling(BOTH + "o = both[8:]"),
    "between given chunks": doubling("all = torch.cat([x, x, x]); x, o = all[:8], all[16:]", read="64 + (row == 7)"),
}


@pytest.mark.parametrize("name", thinned(BEYOND, 5))
def test_an_access_beyond_a_view_is_unsafe(name, refusing):
    result = refusing.evaluate(DOUBLE, BEYOND[name])
    assert (result.status, result.error.type) == (EvalStatus.UNSAFE, "CompiledOutsideView"), result.error


@pytest.mark.parametrize("name", [*thinned(WRITTEN, 4), *thinned(INSIDE, 4)])
def test_reading_written_memory_and_staying_in_a_view_is_fine(name, refusing):
    result = refusing.evaluate(TWICE, WRITTEN[name]) if name in WRITTEN else refusing.evaluate(DOUBLE, INSIDE[name])
    assert result.status is EvalStatus.OK, result.error
    assert result.memory_findings == (), result.error


def test_the_sentence_names_the_element_of_the_view(refusing, recording):
    source = doubling(FILLED, read="64 + 2 * (row == 7)")
    refused, recorded = refusing.evaluate(DOUBLE, source), recording.evaluate(DOUBLE, source)
    assert refused.error.type == "CompiledOutsideView", refused.error
    assert "though inside their storage, at element 512 of x: check the mask" in refused.error.message
    assert recorded.rewarded, recorded.error
    assert [found.kind for found in recorded.memory_findings] == ["outside_view"], recorded.error
