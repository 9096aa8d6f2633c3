# SPDX-License-Identifier: Apache-2.0
"""What steps take on a GPU, by hand from data sheet and constants; and a whole forward, beside the host."""

from dataclasses import replace
from itertools import pairwise
from math import exp
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from verl_kernel.env.gpus import GPUS
from verl_kernel.env.machine.constants import CONSTANTS, constant
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms, lost_share, step_ms, time_ms, timeline, with_transposing
from verl_kernel.env.options import GymOptions, TargetName
from verl_kernel.env.trace import ACCESSES, Step, TraceEvent
from verl_kernel.option_group import words_of

H100 = MachineModel.of("h100")
LAUNCH = constant("launch_us") / 1e3
BANDWIDTH = 0.9 * 3350.0 * 1e6
"""Bytes in a millisecond."""
SMALL = TraceEvent("op", "small", steps=(Step(),))
LARGE = TraceEvent("op", "large", steps=(Step(3 * 10**9),))
PAGE = Path(__file__).parents[3] / "docs" / "notes" / "clock.md"


def work(step, machine=H100, blocks_per_sm=None):
    return step_ms(step, machine, blocks_per_sm) - LAUNCH


TF32 = MachineModel.of("h100", "tf32")
READ = 10**9 / BANDWIDTH
L2, MANY, AT_ONCE = int(H100.l2_bytes), Step(10**9, blocks=132 * 1000), Step(10**9, blocks=132)
AGAIN = Step(10**9, blocks=1320, repeated_bytes=2 * 10**9, private_bytes=2**14)
FLOPS = {
    "fma": 0.77 * 67.0, "matmul": 0.77 * 67.0, "convolution": 0.77 * 67.0, "transposed": 0.77 * 67.0,
    "direct": 0.27 * 67.0, "tf32": 0.6 * 494.7, "half": 0.6 * 989.4,
}  # fmt: skip
"""Float32 products do not round unless they may."""
ROUNDED = {"matmul": 0.6 * 494.7, "convolution": 0.44 * 494.7, "fma": 0.77 * 67.0}
WORK = {
    "rereads that L2 keeps": [(replace(MANY, rereads=((L2, MANY.bytes),)), READ)],
    "rereads beyond L2": [(replace(MANY, rereads=((L2 + 1, MANY.bytes),)), 2 * READ)],
    "common bytes of concurrent blocks": [(replace(AT_ONCE, rereads=((10**9, AT_ONCE.bytes),)), READ)],
    "what concurrent blocks come back to": [
        (replace(AT_ONCE, returns=((L2 + 1, AT_ONCE.bytes),)), 2 * READ),
        (replace(AT_ONCE, returns=((L2, AT_ONCE.bytes),)), READ),
        (replace(MANY, returns=((L2 + 1, MANY.bytes),)), READ),
    ],
    "accesses": [(Step(3_350_000_000, access), 1.0 / constant(access)) for access in ACCESSES],
    "products": [(Step(flops=10**12, unit=unit), 1e3 / tflops) for unit, tflops in FLOPS.items()],
    "rounded products": [(Step(flops=10**12, unit=unit), 1e3 / tflops, TF32) for unit, tflops in ROUNDED.items()],
    "a small grid has the bandwidth of its SMs": [
        (Step(10**9, blocks=blocks), READ / share)
        for blocks, share in ((1, 1 / 132), (33, 1 / 4), (66, 1 / 2), (132, 1.0), (2112, 1.0), (0, 1.0))
    ],
    "arithmetic goes in whole waves": [
        (Step(flops=10**9 * blocks, blocks=blocks), waves * 132 * 10**9 / (0.77 * 67e12) * 1e3)
        for blocks, waves in ((1, 1), (132, 1), (133, 2), (264, 2), (265, 3))
    ],
    "what L2 cannot keep is read again": [
        (AGAIN, READ), (replace(AGAIN, private_bytes=2**16), (1 + 2 * lost_share(1320 * 2**16 / L2)) * READ),
        (replace(AGAIN, private_bytes=2**16), READ, H100, 5), (replace(AGAIN, shared_bytes=1000 * 2**20), 3 * READ),
    ],
    "L2's rate, and less of it for few SMs": [
        (Step(l2_bytes=5500 * 10**6), 1.0), (Step(l2_bytes=10**9, blocks=1), 10**9 / (64 * 1.755e9) * 1e3),
    ],
    "much in flight": [(Step(132 * 2**20, blocks=132, in_flight=2**18), 132 * 2**20 / BANDWIDTH)],
    "a recurrent layer starts once per kernel": [(Step(kernels=1000), 999 * LAUNCH)],
}  # fmt: skip
"""For steps: the milliseconds beyond a launch; and the machine and the blocks of an SM, if they matter."""
WAVES = Step(blocks=132 * 16, block_ns=10_000)
TIMES = [
    (Step(132 * 2**20, blocks=132, in_flight=4096), None, 256 * constant("latency_ns") / 1e6),
    (Step(4096, blocks=1, in_flight=1024, l2_bytes=100 * 1024), None, 100 * constant("l2_latency_ns") / 1e6),
    (WAVES, None, 10e-3),
    (WAVES, 2, 80e-3),
    (replace(WAVES, warps=32), None, 80e-3),
    (WAVES, 99, 10e-3),
    (Step(blocks=21120, block_ns=1000), None, 10e-3),
    (Step(blocks=40, block_ns=1000, serial=30), None, 30e-3),
]
"""Of steps whose blocks wait longer than a launch takes; with the blocks of an SM that registers allow."""


@pytest.mark.parametrize("name", WORK)
def test_the_time_of_a_step(name):
    for step, ms, *where in WORK[name]:
        assert work(step, *where) == pytest.approx(ms), step


@pytest.mark.parametrize(("step", "blocks_per_sm", "ms"), TIMES)
def test_the_time_of_waiting_blocks(step, blocks_per_sm, ms):
    assert step_ms(step, H100, blocks_per_sm) == pytest.approx(ms)


def test_latency_hides_behind_the_start_of_a_kernel():
    assert step_ms(Step(4096, blocks=4, in_flight=512, block_ns=1000), H100) < LAUNCH + 1e-4


@pytest.mark.parametrize("blocks, warps, share", [(132, 1, 4), (132, 2, 2), (264, 1, 2), (528, 1, 1), (132, 8, 1)])
def test_a_warp_has_a_quarter_of_an_sm(blocks, warps, share):
    full = Step(flops=10**12, instructions=10**9, blocks=blocks, warps=4)
    assert work(replace(full, warps=warps)) == pytest.approx(share * work(full))


def test_warps_that_do_not_fit_at_once_keep_no_scheduler_busy():
    step = Step(instructions=10**9, blocks=1320, warps=1)
    assert work(step, blocks_per_sm=2) == pytest.approx(2 * work(step))


def test_memory_and_arithmetic_overlap_within_a_step():
    memory, arithmetic = Step(3 * 10**9), Step(flops=10**12, unit="half")
    both = replace(memory, flops=arithmetic.flops, unit="half")
    assert work(both) == pytest.approx(max(work(memory), work(arithmetic)))
    apart = TraceEvent("op", "x", steps=(memory, replace(arithmetic, kernels=0)))
    assert event_ms(apart, H100) == pytest.approx(LAUNCH + work(memory) + work(arithmetic))


@pytest.mark.parametrize("unit, intensity, share", [("half", 32, 1), ("half", 8, 0.25), ("half", 0, 1), ("fma", 8, 1)])
def test_small_tiles_starve_tensor_cores(unit, intensity, share):
    assert H100.flop_rate(unit, intensity) == pytest.approx(H100.flop_rate(unit) * share, rel=0.06)


def test_an_event_without_steps_is_one_kernel():
    event = TraceEvent("op", "x", bytes=3 * 10**9, flops=10**12, half_flops=10**12)
    assert event_ms(event, H100) == pytest.approx(step_ms(Step(3 * 10**9, flops=10**12, unit="half"), H100))


def test_what_is_still_in_l2_is_not_read_from_memory():
    cold = TraceEvent("op", "x", steps=(Step(30 * 10**6), Step(10**6)))
    pairs = ((5 * 10**6, 10**7), (5 * 10**6, 10**8), (60 * 10**6, 0))
    warm, old, large = (replace(cold, recent=(pair,)) for pair in pairs)
    assert event_ms(warm, H100) == pytest.approx(event_ms(cold, H100) - 5 * 10**6 / BANDWIDTH)
    assert event_ms(old, H100) == event_ms(large, H100) == event_ms(cold, H100)
    full = replace(cold, recent=((30 * 10**6, 0),))
    assert event_ms(full, H100) == pytest.approx(2 * LAUNCH + 30 / 5500 + 10**6 / BANDWIDTH)


@pytest.mark.parametrize(("name", "waits"), [
    ("aten::_local_scalar_dense", True), ("aten::nonzero", True), ("aten::equal", True), ("aten::add.Tensor", False),
])  # fmt: skip
def test_the_host_waits_for_an_answer_before_it_goes_on(name, waits):
    ask = replace(SMALL, name=name)
    begun = [turn.begin for turn in timeline([LARGE, ask, SMALL], H100)]
    idle = SMALL.host_us / 1e3 if waits else 0.0
    assert begun[2] == pytest.approx(event_ms(LARGE, H100) + event_ms(ask, H100) + idle)


def test_the_constants_are_shares_and_positive_numbers():
    assert all(one.value > 0 and one.meaning and one.source for one in CONSTANTS.values())
    assert all(constant(access) <= 1 for access in ACCESSES)
    assert [name for name, gpu in GPUS.items() if gpu.timing_source == "simulated"] == ["h100", "h100_sxm"]


def test_every_profile_can_be_asked_for_and_finds_its_targets():
    assert set(words_of(get_type_hints(GymOptions)["gpu_profile"])) == set(GPUS)
    for gpu in GPUS.values():
        assert any(name.startswith(gpu.targets) for name in get_args(TargetName))
    assert {name for name, gpu in GPUS.items() if gpu.targets == "gfx"} == {"mi300x", "mi355x"}


def test_the_page_has_all_constants():
    rows = [line for line in PAGE.read_text().partition("## Constants")[2].partition("\n## ")[0].splitlines()]
    wanted = [f"| `{name}` | {one.value:g} | {one.meaning} | {one.source} |" for name, one in CONSTANTS.items()]
    assert [row for row in rows if row.startswith("| `")] == wanted


def test_many_small_ops_wait_for_the_host_which_has_a_start():
    assert time_ms([SMALL] * 9, H100) == pytest.approx(9 * event_ms(SMALL, H100))
    ends = [time_ms([SMALL] * count, H100) for count in range(40, 44)]
    assert ends[0] == pytest.approx(40 * 10e-3 - constant("head_start_us") / 1e3 + event_ms(SMALL, H100))
    assert [later - earlier for earlier, later in pairwise(ends)] == pytest.approx([10e-3] * 3)
    turns = timeline([SMALL] * 44, H100)
    assert turns[-1].end == time_ms([SMALL] * 44, H100)
    assert turns[0].idle == 0.0
    assert turns[-1].idle == pytest.approx(10e-3 - event_ms(SMALL, H100))
    assert all(later.begin == pytest.approx(earlier.end + later.idle) for earlier, later in pairwise(turns))


def test_a_large_kernel_hides_what_the_host_does_meanwhile():
    whole = time_ms([LARGE, *[SMALL] * 20], H100)
    assert whole == pytest.approx(event_ms(LARGE, H100) + 20 * event_ms(SMALL, H100))
    assert time_ms([*[SMALL] * 20, LARGE], H100) > whole


def test_a_compiled_kernel_is_known_by_its_name():
    launch = TraceEvent("launch", "k", (2112, 1, 1), steps=(Step(blocks=2112, block_ns=10_000),))
    alone, tight = time_ms([launch], H100), time_ms([launch], H100, {"k": 1})
    assert tight == pytest.approx(16 * alone)
    assert time_ms([launch], H100, {"other": 1}) == alone


PRODUCT = Step(2**30, flops=2**40, unit="tf32", intensity=32, instructions=2**30, blocks=1320)
MULTIPLIED = TraceEvent("launch", "multiply", steps=(PRODUCT, Step(2**28, blocks=1320, kernels=0)))


def test_transposed_tiles_take_as_long_as_their_words():
    staged_bytes, cycles = 4 * 2**40 / 2 / 32, 0.1
    changed = with_transposing(MULTIPLIED, {"multiply": cycles})
    spent_ms = staged_bytes * cycles / (H100.gpu.sms * H100.gpu.clock_ghz * 1e9) * 1e3
    dot_ms = 2**40 / H100.flop_rate("tf32", 32) * 1e3
    assert event_ms(changed, H100) == pytest.approx(LAUNCH + spent_ms + dot_ms + work(MULTIPLIED.steps[1]), rel=0.01)
    assert changed.steps[1:] == MULTIPLIED.steps[1:]


@pytest.mark.parametrize("event", [
    MULTIPLIED, replace(MULTIPLIED, kind="op"), replace(MULTIPLIED, steps=()),
    *(replace(MULTIPLIED, steps=(replace(PRODUCT, **field),)) for field in ({"unit": "half"}, {"intensity": 0})),
])  # fmt: skip
def test_transposing_never_makes_an_event_shorter(event):
    assert with_transposing(event, {}) == event
    # As little as this lies behind the instructions that are counted anyway.
    assert with_transposing(event, {"multiply": 1e-9}) == event


def test_a_cache_loses_more_the_more_is_needed():
    shares = [lost_share(hundredths / 100) for hundredths in range(0, 1000)]
    assert shares[:101] == [0.0] * 101
    assert all(0 <= after - before < 0.02 for before, after in pairwise(shares))
    assert shares[-1] > 0.999
    assert lost_share(1.5) == pytest.approx(1 - exp(-1.5 * lost_share(1.5)))
