# SPDX-License-Identifier: Apache-2.0
"""Blocks of a multiprocessor as the vendors' occupancy calculators have them, and launches that no GPU makes."""

import typing

import pytest

from verl_kernel.env.compilation.outcome import Outcome, Refusal, Resources
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.options import GymOptions, TargetName
from verl_kernel.option_group import words_of

H100, MI300X, MI355X, RADEON = (TARGETS[name] for name in ("sm_90", "gfx942", "gfx950", "gfx1100"))

# Warps, registers, shared memory, target, blocks, scalar registers of AMD's; of NVIDIA's: test_nvidia.py.
BLOCKS = [
    (4, 64, 0, MI300X, 8, 20),  # 8 waves a SIMD
    (4, 65, 0, MI300X, 7, 20),  # 512 registers / 72, which come in eights
    (4, 512, 0, MI300X, 1, 20),
    (16, 32, 0, MI300X, 2, 20),
    (4, 64, 0, MI300X, 7, 101),
    (1, 8, 0, MI300X, 32, 20),  # a block of one wave needs no barrier
    (2, 8, 0, MI300X, 16, 20),
    (4, 32, 20 << 10, MI300X, 3, 20),  # 64 kB / 20
    (4, 32, 20 << 10, MI355X, 8, 20),  # 160 kB / 20
    (4, 32, 33 << 10, MI355X, 4, 20),  # in units of 1280 bytes
    (4, 96, 0, RADEON, 16, 101),
    (4, 97, 0, RADEON, 12, 101),  # 1536 registers / 120
    (4, 32, 60 << 10, RADEON, 2, 20),  # 128 kB / 60
    (2, 32, 0, RADEON, 32, 20),
]
USED = {"warps": 4, "shared": 0, "registers": 8, "spills": 0}
WRONG = [{"warps": -4}, {"shared": None}, {"warps": True}, {"x": 9}, {"matrix": 1}, {"scalars": -1}, {"transposing": 5}]


@pytest.mark.parametrize("row", BLOCKS, ids=lambda row: f"{row[3].name}-{row[:3]}")
def test_blocks_of_a_multiprocessor(row):
    warps, registers, shared, target, blocks, scalars = row
    assert target.blocks(Resources(warps, shared, registers, 0, scalars=scalars)) == blocks


def test_unknown_registers_leave_the_number_unknown():
    kernel = Resources(4, 0, None, None)
    assert H100.blocks(kernel) is None
    assert H100.misfit(kernel) is None
    used = MI300X.resources({"num_warps": 4, "shared": 0}, {"amdgcn": "s_endpgm"}, "")
    assert (used.registers, used.spills, used.scalars, used.matrix) == (None, None, None, False)
    assert MI300X.blocks(used) is None


@pytest.mark.parametrize(("kernel", "target", "words"), [
    (Resources(64, 0, 16, 0), H100, "2048 threads"),
    (Resources(4, (227 << 10) + 1, 16, 0), H100, "232449 bytes of shared memory"),
    (Resources(4, 0, 16, 0, ctas=32), H100, "num_ctas is 32"),
    (Resources(4, 0, 16, 0, tensor_columns=513), H100, "tensor memory"),
    (Resources(32, 0, 255, 0), H100, "more than a multiprocessor has"),
    (Resources(32, 0, 16, 0), MI300X, "32 warps are 2048 threads"),
    (Resources(32, 0, 16, 0), RADEON, None),
    (Resources(4, (64 << 10) + 1, 16, 0), MI300X, "65537 bytes of shared memory"),
    (Resources(4, (64 << 10) + 1, 16, 0), MI355X, None),
    (Resources(4, (160 << 10) + 1, 16, 0), MI355X, "has at most 163840"),
    (Resources(4, (64 << 10) + 1, 16, 0), RADEON, "has at most 65536"),
])  # fmt: skip
def test_what_compiles_and_cannot_be_launched(kernel, target, words):
    misfit = target.misfit(kernel)
    assert misfit is None if words is None else words in misfit


@pytest.mark.parametrize(("target", "grid", "words"), [
    (H100, (2**31 - 1, 65535, 65535), None), (H100, (1, 65536, 1), "65536 programs along y"),
    (H100, (1, 1, 65536), "along z"), (H100, (2**31, 1, 1), "along x"),
    (MI300X, ((1 << 24) - 1, 1 << 20, 1 << 20), None),  # fewer than 2^32 threads along an axis
    (MI300X, (1 << 24, 1, 1), "16777216 programs along x"), (RADEON, (1 << 24, 1, 1), None),
])  # fmt: skip
def test_grids_have_a_largest_size_along_each_axis(target, grid, words):
    wrong = target.wrong_grid(grid, Resources(4, 0, 16, 0))
    assert wrong is None if words is None else words in wrong


def test_every_target_can_be_asked_for():
    assert set(words_of(typing.get_type_hints(GymOptions)["compile_for"])) == {"off", *TARGETS}
    assert set(typing.get_args(TargetName)) == set(TARGETS)


@pytest.mark.parametrize("claim", [
    {}, [1], {"used": USED}, *({"used": {**USED, **wrong}, "seconds": 1.0} for wrong in WRONG),
    {"refused": {"kind": 1, "message": ""}, "seconds": 1.0},
    {"refused": {"kind": "", "message": "", "offset": -1}, "seconds": 1.0},
    {"refused": {"kind": "", "message": ""}, "seconds": float("nan")},
])  # fmt: skip
def test_what_a_compiling_process_claims_is_checked(claim):
    with pytest.raises((ValueError, TypeError, LookupError)):
        Outcome.from_json(claim)


@pytest.mark.parametrize("result", [
    Resources(4, 16, 17, 0), Resources(4, 16, 17, 0, accumulators=8, scalars=20, matrix=True),
    Refusal("NameError", "s is not defined", 1, 3),
])  # fmt: skip
def test_outcomes_travel_as_json(result):
    assert Outcome.from_json(Outcome(result, 0.5).to_json()) == Outcome(result, 0.5)
