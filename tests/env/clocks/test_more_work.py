# SPDX-License-Identifier: Apache-2.0
"""More of the same work never costs less."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.ops.test_one_price import ms
from tests.env.ops.ways import FAMILIES, t
from tests.env.programs import program, reference
from tests.tiers import one_of_each, thinned
from verl_kernel.env.gpus import GPUS
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms, step_ms, time_ms
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.env.trace import ACCESSES, UNITS, Step, TraceEvent

H100 = MachineModel.of("h100")
ROUNDING = 1 - 1e-9
FULLER = 0.95
"""What a larger tensor may cost over a smaller one: more blocks may fill the last round better."""
COUNTS = st.integers(0, 1 << 40)
STEPS = st.builds(
    Step, bytes=COUNTS, access=st.sampled_from(ACCESSES), instructions=COUNTS, flops=COUNTS,
    unit=st.sampled_from(UNITS), blocks=st.integers(0, 1 << 16),
    warps=st.sampled_from([1, 2, 4, 8, 16]), in_flight=st.sampled_from([0, 512, 16384]),
    block_ns=st.sampled_from([0, 1000, 50000]), l2_bytes=COUNTS, repeated_bytes=COUNTS,
    private_bytes=st.integers(0, 1 << 20), shared_bytes=COUNTS,
)  # fmt: skip
WORK = (
    "bytes", "instructions", "flops", "block_ns", "l2_bytes", "repeated_bytes", "private_bytes", "shared_bytes",
    "kernels",
)  # fmt: skip
WAYS = one_of_each(((family, way) for family, ways in FAMILIES.items() for way in ways), key=lambda case: case[0])


@pytest.mark.parametrize("name", WORK)
@given(STEPS, st.integers(1, 1 << 30), st.sampled_from(sorted(GPUS)))
def test_more_of_anything_in_a_step_takes_no_less(name, step, more, gpu):
    machine = MachineModel.of(gpu)
    plain, larger = (step_ms(one, machine) for one in (step, replace(step, **{name: getattr(step, name) + more})))
    assert ROUNDING * plain <= larger < 1e18
    assert plain > 0


@given(st.lists(STEPS, min_size=1, max_size=3), STEPS, st.integers(0, 3))
def test_a_further_step_takes_no_less(steps, step, place):
    event = TraceEvent("op", "op", steps=tuple(steps))
    longer = replace(event, steps=(*steps[:place], step, *steps[place:]))
    assert event_ms(longer, H100) >= ROUNDING * event_ms(event, H100)


@given(st.lists(STEPS, max_size=6), STEPS, st.integers(0, 6), st.integers(0, 60))
def test_a_further_event_takes_no_less(steps, step, place, host_us):
    events = [TraceEvent("op", "op", steps=(one,)) for one in steps]
    longer = [*events[:place], TraceEvent("launch", "k", (1,), steps=(step,), host_us=host_us), *events[place:]]
    assert time_ms(longer, H100) >= ROUNDING * time_ms(events, H100)


@given(STEPS, st.lists(st.tuples(COUNTS, COUNTS), max_size=4), st.integers(1, 1 << 30), st.data())
def test_what_has_moved_since_makes_no_read_cheaper(step, recent, more, data):
    place = data.draw(st.integers(0, len(recent)))
    further = tuple((size, since + more * (number >= place)) for number, (size, since) in enumerate(recent))
    event = TraceEvent("op", "op", steps=(step,), recent=tuple(recent))
    assert event_ms(replace(event, recent=further), H100) >= ROUNDING * event_ms(event, H100)


@pytest.mark.parametrize("case", WAYS, ids=": ".join)
@settings(max_examples=4)
@given(st.sampled_from([64, 512, 4096]), st.sampled_from([128, 1024, 4096]), st.booleans())
def test_a_larger_tensor_costs_no_less(case, rows, columns, is_wider):
    family, way = case
    run, larger = FAMILIES[family][way], (rows, 2 * columns) if is_wider else (2 * rows, columns)
    assert ms(lambda: run(*larger)) >= FULLER * ms(lambda: run(rows, columns))


@pytest.mark.parametrize("case", WAYS, ids=": ".join)
def test_a_further_op_costs_no_less(case):
    family, way = case
    run = FAMILIES[family][way]
    assert ms(lambda: (run(512, 1024), t(64, 64).exp())) > ms(lambda: run(512, 1024))


DOUBLE = """
@triton.jit
def double(x, o, turns, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + c)
    mixed = tl.abs(value)
    for turn in range(turns):
        mixed = mixed * 0.999 + 0.001
    tl.store(o + c, tl.maximum(value, 0.0) * 2.0 + tl.where(mixed == -1.0, 1.0, 0.0))
"""
FORWARD = """
o, spare = torch.empty_like(x), torch.empty_like(x)
for launch in range({idle}):
    double[({blocks},)](x, spare, {turns}, B={block})
{torch}
double[(x.numel() // {block},)](x, o, {turns}, B={block}, num_warps={warps})
return o
"""
PLAIN = {"idle": 0, "blocks": 8, "turns": 200, "torch": "pass", "warps": 4, "block": 512}
MORE = {
    "turns": {"turns": 300}, "launches": {"idle": 1}, "more launches": {"idle": 3}, "ops": {"torch": "x.exp()"},
    "large launches": {"idle": 1, "blocks": 128}, "copies": {"torch": "x = x.clone()"},
}  # fmt: skip
LESS = {"more launches": "launches", "large launches": "launches"}
"""What a program has more than; the plain one if it is not named."""
OPTIONS = GymOptions(device="cpu", correctness_trials=2)


@pytest.fixture(scope="module")
def judged(judge):
    def run(rows=128, **more):
        source = program(DOUBLE, FORWARD.format(**{**PLAIN, **more}))
        result = judge.evaluate(Task(reference("torch.relu(x) * 2.0", f"torch.randn({rows}, 512)")), source)
        assert result.rewarded, result.error
        return result.kernel_ms.median

    return run


@pytest.mark.processes
@pytest.mark.parametrize("name", thinned(MORE, 6))
def test_a_program_with_more_to_do_takes_no_less(name, judged):
    assert judged(**MORE[name]) >= ROUNDING * judged(**MORE.get(LESS.get(name), {}))


@pytest.mark.processes
@pytest.mark.parametrize("rows", thinned([64, 128, 256], 3))
def test_twice_the_rows_take_no_less(rows, judged):
    assert judged(2 * rows) >= ROUNDING * judged(rows)
