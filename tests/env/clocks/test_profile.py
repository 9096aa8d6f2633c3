# SPDX-License-Identifier: Apache-2.0
"""Coverage: whose kernels took the time, by a trace and by what a device saw of kernels with these names."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.clocks.cuda.clock import load_kernels, profile_kernels
from verl_kernel.env.clocks.profile import profile_events
from verl_kernel.env.result import Launch
from verl_kernel.env.tamper.trace_checks import AblationTargets, computes, latest_known, lazy_flags, own_work
from verl_kernel.env.trace import TraceEvent

OWN = TraceEvent("launch", "mine", (2, 1, 1), bytes=6, source="candidate.py")
FOREIGN = TraceEvent("launch", "theirs", (1, 1, 1), bytes=2, source="library.py")
FAILED = TraceEvent("launch", "mine", (2, 1, 1), bytes=1, source="candidate.py", failed=True)
OP = TraceEvent("op", "aten::add.Tensor", bytes=4)
NAMED_LIKE_A_KERNEL = TraceEvent("op", "mine", bytes=1, source="")
UNPRICED = TraceEvent("op", "aten::_fft_r2c", bytes=4, priced=False)
GEMM, MM = "sm90_xmma_gemm_f32f32", TraceEvent("op", "aten::mm")
MIXED = {"fused": (2, 3.0), GEMM: (1, 6.0), "Memset (Device)": (1, 1.0)}
THREE = {"a": (1, 1.0), "b": (1, 1.0), "c": (1, 2.0)}


def profile(*events, idle=(), moves_count=False, **options):
    work = own_work(events, "candidate.py", events, idle, moves_count)
    return profile_events(events, "candidate.py", lambda event: float(event.bytes), work, **options)


def launch(stored, computed, name="mine", size=6):
    return TraceEvent("launch", name, (1, 1, 1), bytes=size, source="candidate.py", stored=stored, computed=computed)


@pytest.mark.parametrize(("events", "own", "options", "by_time", "by_number"), [
    ([OWN, FOREIGN, OP, OP], 1, {}, 6 / 16, 1 / 4),
    ([NAMED_LIKE_A_KERNEL, FOREIGN], 0, {}, 0.0, 0.0),
    ([FAILED, OP], 0, {}, 0.0, 0.0),
    ([], 0, {}, 0.0, 0.0),
    ([launch(8, 0), launch(8, 8), OP, OP], 2, {}, 6 / 14, 1 / 3),  # what is moved counts on neither side
    ([launch(8, 2), OP], 1, {}, 1.5 / (6 - 4.5 + 4), 0.25 / 1.25),  # as far as it computes
    ([launch(8, 0), OP], 1, {}, 0.0, 0.0),
    ([launch(8, 0)], 1, {}, 0.0, 0.0),
    ([launch(8, 0), OP], 1, {"moves_count": True}, 0.6, 0.5),
    ([launch(8, 8), launch(8, 8, "junk"), OP], 2, {"idle": {1}}, 6 / 16, 1 / 3),  # without effect: it costs as much
    ([launch(0, 0), OP], 1, {}, 0.0, 0.0),
    ([launch(8, 8), UNPRICED], 1, {}, None, 0.5),
])  # fmt: skip
def test_what_a_launch_covers(events, own, options, by_time, by_number):
    seen = profile(*events, **options)
    assert (seen.num_custom_kernels, seen.num_total_kernels) == (own, len(events))
    assert seen.time_coverage == (by_time and pytest.approx(by_time))
    assert seen.number_coverage == pytest.approx(by_number)
    assert seen.fallback_ops.get("aten::add.Tensor", 0) == events.count(OP)


def test_launches_are_grouped_and_top_kernels_are_sorted():
    two, four = (Launch(name="mine", grid=(blocks, 1, 1), count=count) for blocks, count in ((2, 2), (4, 1)))
    assert profile(OWN, replace(OWN, grid=(4, 1, 1)), OWN).launches == (two, four)
    assert profile(OP, OWN, OP, FOREIGN, top=2).top_kernels == (("aten::add.Tensor", 8.0), ("mine", 6.0))


@given(st.lists(st.sampled_from([OWN, FOREIGN, FAILED, OP]), min_size=1))
def test_coverage_is_a_share(events):
    seen = profile(*events)
    own, total = (sum(event.bytes for event in some) for some in ([one for one in events if one is OWN], events))
    assert 0 <= seen.time_coverage <= 1
    assert 0 <= seen.number_coverage <= 1
    assert (seen.number_coverage == 1) == all(event is OWN for event in events)
    assert seen.time_coverage == pytest.approx(own / total)


def test_the_latest_forward_knows_best():
    first = [launch(8, 8), OP]
    for latest, covered in ((launch(8, 0), 0.0), (launch(8, 0, "another"), 1.0)):
        assert own_work(first, "candidate.py", [latest, OP], (), False).covered == (covered, 0.0)


MOVES, COMPUTES = (replace(launch(8, computed), variant="code") for computed in (0, 8))


@pytest.mark.parametrize(("latest", "is_known"), [
    ([COMPUTES, OP], True), ([replace(COMPUTES, variant="other"), OP], False), ([COMPUTES], False),
    ([replace(COMPUTES, name="another"), OP], False),
])  # fmt: skip
def test_another_mode_shows_more_of_the_same_code_and_work(latest, is_known):
    assert latest_known([MOVES, OP], latest, "candidate.py") == (latest if is_known else [MOVES, OP])


@pytest.mark.parametrize(("events", "flags"), [
    ([launch(8, 0), OP], ("only_moves",)),
    ([launch(8, 8), OP], ()),
    ([OWN, OP], ()),  # a device that does not see stores
    ([FAILED, launch(8, 0)], ("launch_raised", "only_moves")),
    ([OP], ()),
])  # fmt: skip
def test_flags(events, flags):
    assert lazy_flags([events], own_work(events, "candidate.py", events, (), False), "candidate.py") == flags


LIGHT, HEAVY, MOVED = launch(8, 8, size=1), launch(8, 8, size=9), launch(8, 0, size=99)
SOME, OTHERS = [launch(8, 8, "a", 1)] * 3, [launch(8, 8, "b", 2)] * 3
MANY = [launch(8, 8, str(number), number) for number in range(9)]


@pytest.mark.parametrize(("events", "moves_count", "groups"), [
    ([MOVED, LIGHT, OP, HEAVY, FOREIGN], False, [[2], [1]]),
    ([MOVED, LIGHT, HEAVY], True, [[0], [2], [1]]),
    ([LIGHT, OP], False, []),
    ([*SOME, *OTHERS], False, [[3, 4, 5], [0, 1, 2]]),  # kernel by kernel, where there are many launches
    (MANY, False, [[8], [7], [6], [5]]),
    (SOME * 2, False, []),
])  # fmt: skip
def test_heavy_launches_are_asked_for_first(events, moves_count, groups):
    assert AblationTargets.of(events, "candidate.py", moves_count).groups(4) == groups


@pytest.mark.parametrize(("found", "least", "most"), [(0, 0, 0), (1, 20, 30), (2, 45, 55), (4, 95, 100)])
def test_as_many_launches_count_as_idle_as_among_those_drawn(found, least, most):
    parts = AblationTargets.of([launch(8, 8, "a", 1)] * 100, "candidate.py", False)
    drawn = [3, 14, 15, 92]
    idle = parts.extrapolated(Random(0), drawn, set(drawn[:found]))
    assert least <= len(idle) <= most
    assert idle & set(drawn) == set(drawn[:found])


def test_heavy_launches_are_drawn_more_often():
    events = [launch(8, 8, "a", 1 << 20), *[launch(8, 8, "a", 1)] * 99]
    assert AblationTargets.of(events, "candidate.py", False).sample(Random(0), 20).count(0) > 15


@pytest.mark.parametrize(("name", "expected"), [
    ("reflection_pad2d", False), ("pixel_shuffle", False), ("embedding_dense_backward", False), ("index_add_", False),
    ("add.Tensor", True),
])  # fmt: skip
def test_what_a_task_asks_for_beside_moving(name, expected):
    assert computes([TraceEvent("op", "aten::gather"), TraceEvent("op", f"aten::{name}")]) is expected


def launched(name, source="candidate.py", **fields):
    return TraceEvent("launch", name, (4, 1, 1), source=source, **fields)


def test_kernels_that_a_device_saw():
    profile = profile_kernels(MIXED, [launched("fused"), launched("fused"), MM], "candidate.py")
    assert profile.time_coverage == pytest.approx(0.3)
    assert profile.number_coverage == pytest.approx(0.5)
    assert (profile.num_custom_kernels, profile.num_total_kernels) == (2, 4)
    assert profile.fallback_ops == {"aten::mm": 1}
    assert profile.launches[0].count == 2
    assert profile.top_kernels[0] == (GEMM, 6.0)


@pytest.mark.parametrize(("kernels", "events", "coverage"), [
    ({GEMM: (2, 6.01)}, [launched(GEMM), MM], 0.0),  # one of the library, one empty of that name
    (THREE, [launched("a", source=""), launched("b", failed=True), launched("c")], 0.5),
    ({GEMM: (1, 1.0)}, [launched("ghost"), MM], 0.0),  # no device saw it
    ({}, [], 0.0),
])  # fmt: skip
def test_what_is_not_own_covers_nothing(kernels, events, coverage):
    assert profile_kernels(kernels, events, "candidate.py").time_coverage == pytest.approx(coverage)


def test_a_launch_that_no_device_saw_counts_as_none():
    assert profile_kernels({GEMM: (1, 1.0)}, [launched("ghost"), MM], "candidate.py").number_coverage == 0.0
    assert profile_kernels({}, [launched("fused")], "candidate.py") is None  # a blind profiler


@pytest.mark.parametrize("kernel", [[0, 1.0], [1, -1.0], [1, float("nan")], [True, 1.0], [1], [1, "2"]])
def test_what_is_no_list_of_kernels_is_refused(kernel):
    assert load_kernels({"k": [2, 1]}) == {"k": (2, 1.0)}
    for value in ({"k": kernel}, []):
        with pytest.raises(ValueError):
            load_kernels(value)
