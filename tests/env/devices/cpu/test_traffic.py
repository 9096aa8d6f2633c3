# SPDX-License-Identifier: Apache-2.0
"""What the interpreter counts for kernels whose traffic and work are known by hand; they are in traffic_cases.py."""

from pathlib import Path

import numpy as np
import pytest

from tests.env.devices.cases import run_cases
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.cpu.work.launch_steps import launch_steps, warps_of
from verl_kernel.env.devices.cpu.work.traffic import Traffic, Use, sector_bytes, span

CASES = Path(__file__).with_name("traffic_cases.py")
ROWS, COLUMNS = 64, 256
X = 4 * ROWS * COLUMNS
MATMUL = 2 * 64 * 96 * 128
PANELS = 4 * 128 * (64 * 6 + 96 * 4)
"""Each of 6 columns of tiles reads all of a, each of 4 rows of tiles all of b."""


@pytest.fixture(scope="module")
def cases():
    return run_cases(CASES, resolve_device("cpu").zygote_env())


@pytest.mark.parametrize(
    ("name", "moved", "flops", "device", "l2"),
    [
        ("add", 3 * 4 * 4001, 4001, 3 * 4 * 4001, 3 * 4 * 4001),
        ("softmax", 4 * X, 64 * (256 + 64 + 3 * 256 + 64 + 3 * 256), 2 * X, 4 * X),
        ("matmul", PANELS + 4 * 64 * 96, MATMUL, 4 * (64 * 128 + 128 * 96 + 64 * 96), PANELS + 4 * 64 * 96),
        ("half", PANELS // 2 + 4 * 64 * 96, MATMUL, 2 * (64 + 96) * 128 + 4 * 64 * 96, PANELS // 2 + 4 * 64 * 96),
        ("transpose", 2 * X, 0, 2 * X, 2 * X),
        ("row sum", X + 4 * 64, 64 * 256, X + 4 * 64, X + 32 * 64),
        ("atomic", X + 2 * 4 * 64, 64 * 256, X, X + 2 * 32 * 64),
        ("persistent", 2 * X, 64 * 256, 2 * X, 2 * X),
        ("bias", 3 * X, 64 * 256, 2 * X + 4 * 256, 3 * X),
        ("strided", 2 * 4 * 4096, 0, (32 + 4) * 4096, (32 + 4) * 4096),
        ("shifted", 2 * 4 * 4096, 0, 2 * 4 * 4096, 4 * 4096 + 16 * (1024 + 32)),
        ("first only", 2 * X, 64 * 256, 2 * X, 2 * X),
    ],
)
def test_counts_agree_with_those_by_hand(cases, name, moved, flops, device, l2):
    event = cases[name]
    steps = event["steps"]
    assert event["bytes"] == pytest.approx(moved, rel=0.01)
    assert event["flops"] == pytest.approx(flops, rel=0.03 if name == "add" else 0.01)  # 95 lanes of 4096 are masked
    assert sum(step["bytes"] for step in steps) == pytest.approx(device, rel=0.01)
    assert sum(step["l2_bytes"] for step in steps) == pytest.approx(l2, rel=0.01)


def test_products_by_precision_and_tile(cases):
    units = {name: (step["unit"], step["flops"]) for name in ("matmul", "tf32", "tf32x3", "half")
             for step in cases[name]["steps"][:1]}  # fmt: skip
    assert units == {"matmul": ("fma", MATMUL), "tf32": ("matmul", MATMUL), "tf32x3": ("tf32", 3 * MATMUL),
                     "half": ("half", MATMUL)}  # fmt: skip
    first, last = cases["matmul"]["steps"]
    assert first["intensity"] == 8 and first["instructions"] == 0 and first["kernels"] == 1
    assert last["bytes"] == 4 * 64 * 96 and last["kernels"] == 0  # the result is written after the arithmetic
    assert cases["tf32x3"]["steps"][0]["instructions"] == 0


def test_what_a_program_reads_again_is_kept_apart(cases):
    (step,) = cases["softmax"]["steps"]
    assert step["repeated_bytes"] == 2 * X and step["private_bytes"] == 2 * X // 64 and step["warps"] == 2


def test_programs_without_work_do_not_count(cases):
    assert cases["first only"]["steps"][0]["blocks"] == 1 and cases["first only"]["grid"] == [132, 1, 1]
    assert cases["persistent"]["steps"][0]["blocks"] == 4


def test_a_tile_beyond_all_registers_spills(cases):
    (step,) = cases["large tile"]["steps"]
    assert step["bytes"] == 2 * (2 * 4 * 131072) + 3 * 32


def test_what_a_launch_writes_later_launches_and_ops_find_in_l2(cases):
    assert cases["chain"] == [[], [[X, 0]], [[X, 0]]]


@pytest.mark.parametrize(
    ("addresses", "itemsize", "moved"),
    [
        (range(0, 128, 4), 4, 128),
        (range(4, 132, 4), 4, 160),
        (range(0, 1024, 32), 4, 1024),
        (range(0, 2048, 64), 4, 1024),
        ([0, 0, 0, 0], 4, 32),
        ([96, 0, 32, 4], 4, 96),
        ([28], 8, 64),
    ],
)
def test_sectors(addresses, itemsize, moved):
    active = np.array(list(addresses), dtype=np.uint64)
    assert sector_bytes(active, bool(np.all(active[1:] > active[:-1])), itemsize) == moved
    assert span(31, 33) == 64 and span(0, 32) == 32


def test_shared_reads_are_told_from_private_ones():
    shared, private = Use(), Use()
    for program in range(4):
        shared.add(0, 1024, 1024)
        private.add(1024 * program, 1024 * (program + 1), 1024)
        assert shared.end_program() == private.end_program() == 1024
    assert shared.is_shared and shared.once == 1024 and shared.repeated == 0
    assert not private.is_shared and private.once == 4096 and private.repeated == 0


@pytest.mark.parametrize("value", [None, 0, 3, 64, "4", 4.0, True, -1])
def test_warps_that_cannot_be_are_the_default(value):
    assert warps_of(value) == (1 if value == 1 and value is not True else 4) and warps_of(8) == 8


def test_a_launch_without_any_access_is_a_kernel_all_the_same():
    (step,) = launch_steps(Traffic(), (3, 2, 1), 0, {}, 4)
    assert (step.bytes, step.blocks, step.kernels) == (0, 6, 1)
