# SPDX-License-Identifier: Apache-2.0
"""What a runner may ask of the executing process, requests that no runner sends, orders, watching, its start."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from verl_kernel.env.compilation.outcome import PASSED_OVER, UNKNOWN
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.kernel import Buffer
from verl_kernel.env.emulator.library import all as library
from verl_kernel.env.emulator.library.grid import RESIDENT
from verl_kernel.env.execution import memory_checks, zygote
from verl_kernel.env.execution.launch_arguments import Arena, ArenaCopy, nearest
from verl_kernel.env.execution.launches import Launches, Stop, random_order, reversed_order

SIZE = 1 << 20
FUNCTION = {"name": "k", "line": 4, "is_constant": False, "marks": {}, "defaults": {}, "settings": {}, "uses": {}}
UNIT = {"launch": {"function": 0, "positional": [], "named": {}, "options": {}}, "functions": [FUNCTION]}
CLUSTERS = {**UNIT, "launch": {**UNIT["launch"], "options": {"num_ctas": 2}}}
REQUEST = {
    "unit": UNIT, "grid": [1, 1, 1], "arguments": {}, "areas": [], "is_tried": False, "kept": None, "pointers": [],
    "fresh": [],
}  # fmt: skip
REFUSED = {"message": "no clusters", "function": 0, "offset": 2}


@pytest.fixture
def arena() -> Iterator[Arena]:
    fd = os.memfd_create("arena")
    os.ftruncate(fd, SIZE)
    yield Arena(fd, SIZE)
    os.close(fd)


@pytest.fixture
def launches(arena) -> Launches:
    def refuse(request):
        made.asked.append(request)
        kind = UNKNOWN if "num_ctas" in request["unit"]["launch"]["options"] else "CompilationError"
        return {"refused": {**REFUSED, "kind": kind}}, b""

    made = Launches(arena, refuse)
    made.asked = []
    return made


@pytest.mark.parametrize(("offset", "length"), [(-1, 4), (0, SIZE + 1), (SIZE - 3, 4), (0.5, 1), (0, True), (2**70, 0)])
def test_a_piece_outside_of_the_arena_has_no_address(arena, offset, length):
    with pytest.raises(ValueError, match="arena"):
        arena.address(offset, length)


def test_a_copy_holds_the_same_in_its_areas_and_is_its_own(arena):
    assert arena.address(SIZE, 0) - arena.address(16, SIZE - 16) == SIZE - 16
    ctypes.memset(arena.address(64, 8), 7, 8)
    copy = ArenaCopy(arena, [(64, 8), (4096, 16)])
    assert ctypes.string_at(copy.address(64, 8), 8) == bytes([7] * 8)
    assert copy.address(4096, 16) % 4096 == arena.address(4096, 16) % 4096
    ctypes.memset(copy.address(64, 8), 1, 8)
    assert ctypes.string_at(arena.address(64, 8), 8) == bytes([7] * 8)
    with pytest.raises(ValueError, match="arena"):
        ArenaCopy(arena, [(0, SIZE + 1)])
    ArenaCopy(arena, [])


def test_addresses_are_written_where_tables_have_them(arena):
    arena.point([(64, 4096)])
    assert ctypes.c_int64.from_address(arena.address(64, 8)).value == arena.address(4096, 0)
    for pointer in ((SIZE - 4, 0), (0, SIZE + 1)):
        with pytest.raises(ValueError, match="arena"):
            arena.point([pointer])


@pytest.mark.parametrize(("length", "pieces"), [(10, 1), (1 << 20, 7), (700_000, 4)])
def test_a_report_of_any_length_comes_in_pieces(launches, length, pieces):
    """A longer message than the channel takes ended the process, which was called our failure."""
    works = [{"variant": str(number) * length} for number in range(7)]
    for work in works:
        launches._record(work)
    found, messages = [], 0
    while len(found) < 7:
        report = launches.report(len(found))
        assert report["left"] == 7 - len(found) - len(report["works"])
        found += report["works"]
        messages += 1
    assert found == works
    assert messages == pieces


def test_reports_have_a_bound_that_is_the_candidates(launches, monkeypatch):
    monkeypatch.setattr("verl_kernel.env.execution.launches._MOST_REPORTED", 1000)
    launches._record({"variant": "a" * 500})
    with pytest.raises(Stop, match="after 1 launches of a forward") as stopped:
        launches._record({"variant": "b" * 500})
    assert stopped.value.kind == "stopped"
    launches.begin(0, watch=False)
    launches._record({"variant": "b" * 500})
    assert launches.report()["left"] == 0


@pytest.mark.parametrize(("offset", "named"), [
    (65536, "element 16384 of x"), (65536 + 400, "element 16484 of x"), (-4, "element -1 of x"),
    (65536 + 4096 - 8, "element -2 of y"), (65536 + 8192, "element 0 of z"), (1 << 31, ""),
])  # fmt: skip
def test_the_nearest_tensor_is_the_one_named(arena, offset, named):
    """Three tensors, the first one of 16,384 numbers; 4,096 bytes lie between it and the next."""
    sizes = {"x": (0, 65536), "y": (65536 + 4096, 16), "z": (65536 + 8192, 16)}
    begin = arena.address(0, 0)
    buffers = [Buffer(begin + start, size) for start, size in sizes.values()]
    arguments = {name: {"tensor": start} for name, (start, _) in sizes.items()}
    assert nearest({"x": "*fp32", "y": "*i32", "z": "*fp16"}, arguments, arena, buffers, begin + offset) == named


@pytest.mark.parametrize("request_", [
    {},
    {**REQUEST, "unit": None},
    {key: value for key, value in REQUEST.items() if key != "kept"},
    {**REQUEST, "unit": {"launch": {}, "functions": []}},
    {**REQUEST, "unit": {**UNIT, "functions": []}},
])  # fmt: skip
def test_what_cannot_be_read_is_told_to_the_judge(launches, request_):
    assert launches.run(request_)["failure"].startswith("a launch cannot be read: ")
    reported = launches.report()
    assert reported["stopped"]["kind"] == "unreadable"
    assert reported["works"] == []
    launches.begin(0, False)
    assert launches.report()["stopped"] is None


def test_clusters_are_said_to_be_unknown(launches):
    assert "clusters" in launches.run({**REQUEST, "unit": CLUSTERS, "is_tried": True})["failure"]
    assert launches.report()["stopped"] is None  # what is tried stops nothing
    assert "clusters" in launches.run({**REQUEST, "unit": CLUSTERS})["failure"]
    assert launches.report()["stopped"]["kind"] == "unknown"


@pytest.mark.parametrize("is_tried", [False, True])
def test_what_the_compiler_refuses_is_told_with_its_line(launches, is_tried):
    launches.run({**REQUEST, "is_tried": is_tried})
    stopped = launches.report()["stopped"]
    assert (stopped["kind"], stopped["line"]) == ("refused", 6)
    assert stopped["message"] == "CompilationError: no clusters"


@pytest.mark.parametrize("kind", PASSED_OVER)
def test_configurations_an_autotuner_skips_are_not_told(arena, kind):
    launches = Launches(arena, lambda request: ({"refused": {**REFUSED, "kind": kind}}, b""))
    assert launches.run({**REQUEST, "is_tried": True})["failure"].startswith(kind)
    assert launches.report()["stopped"] is None


def test_what_is_known_is_not_asked_again(launches):
    launches.run(REQUEST)
    launches.run(REQUEST)
    assert len(launches.asked) == 1
    launches.run({**REQUEST, "kept": ["moves"]})
    wanted = "what has no code has no stores that are left out"
    assert [request["left_out"] for request in launches.asked] == [None], wanted


def test_a_failure_of_the_judge_stops_the_launch(arena):
    launches = Launches(arena, lambda request: ({"failed": "it was killed"}, b""))
    assert launches.run(REQUEST)["failure"] == "it was killed"
    assert launches.report()["stopped"]["kind"] == "failed"


@pytest.mark.parametrize("programs", [1, 2, 37, (1 << 20) + 5])
def test_two_forwards_run_each_pair_both_ways_round(programs):
    order = random_order(np.random.default_rng(3), programs, False)
    np.testing.assert_array_equal(np.sort(order), np.arange(programs))
    np.testing.assert_array_equal(reversed_order(order, False), order[::-1])


def test_orders_are_drawn():
    assert len({tuple(random_order(np.random.default_rng(seed), 5, False)) for seed in range(40)}) > 20


@pytest.mark.parametrize("programs", [5, RESIDENT, 3 * RESIDENT + 7])
def test_programs_that_wait_stay_among_those_that_are_resident(programs):
    order = random_order(np.random.default_rng(3), programs, True)
    for some in (order, reversed_order(order, True)):
        np.testing.assert_array_equal(np.sort(some), np.arange(programs))
        np.testing.assert_array_equal(some // RESIDENT, np.arange(programs) // RESIDENT)
    first = order[:RESIDENT]
    assert list(reversed_order(order, True)[: len(first)]) == list(first[::-1]) != list(np.sort(first))


@contextmanager
def no_room(ranges, arrays):
    raise MemoryError
    yield


def test_views_whose_memory_cannot_be_kept_are_not_watched(monkeypatch):
    monkeypatch.setattr(memory_checks.rehearsal, "undone", no_room)
    memory = np.zeros(8, np.uint8)
    whole, checks = Buffer(int(memory.ctypes.data), 8), memory_checks.MemoryChecks()
    checks.begin(True, True)
    nothing = SimpleNamespace(sites=[], program=None)
    with pytest.raises(Fault, match="could not be watched for accesses beyond views"):
        checks.launch(lambda buffers, **more: nothing, [whole], [Buffer(whole.address, 4)])


@pytest.fixture
def needed(monkeypatch):
    """What is asked of the library: functions, and where their code is kept."""
    found = []
    fake = SimpleNamespace(need=lambda *asked: found.append(asked))
    monkeypatch.setattr(zygote, "library", lambda: fake)
    return found


def test_code_is_kept_where_nobody_else_can_write(needed, tmp_path, monkeypatch):
    zygote.load_library(str(tmp_path))
    assert needed.pop()[1] is not None
    tmp_path.chmod(0o777)
    zygote.load_library(str(tmp_path))
    assert needed.pop() == (library.FIRST, None)
    monkeypatch.setattr(zygote.landlock, "abi", lambda: 0)
    zygote.load_library(str(tmp_path / "code"))
    assert needed == [(library.FIRST, None)]
    assert not (tmp_path / "code").exists()


def test_a_zygote_begins_with_a_small_launch():
    assert zygote.small_launch().tolist() == [2.0 * number for number in range(32)]
