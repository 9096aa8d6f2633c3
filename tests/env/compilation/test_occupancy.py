# SPDX-License-Identifier: Apache-2.0
"""Blocks per multiprocessor as NVIDIA's occupancy calculator has them, and launches that no GPU makes."""

import typing

import pytest

from verl_kernel.env.compilation.outcome import Outcome, Refusal, Resources
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.options import GymOptions, TargetName
from verl_kernel.option_group import words_of

H100, A100, RTX4090 = TARGETS["sm_90"], TARGETS["sm_80"], TARGETS["sm_89"]


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "target", "blocks"),
    [
        (4, 32, 0, H100, 16),  # 64 warps
        (1, 16, 0, H100, 32),  # 32 blocks
        (8, 128, 0, H100, 2),  # 65536 registers / (256 threads x 128)
        (8, 129, 0, H100, 1),  # registers come in eights a thread
        (4, 255, 0, H100, 2),
        (8, 32, 100 << 10, H100, 2),  # 228 kB / (100 + 1)
        (8, 32, 227 << 10, H100, 1),
        (8, 32, 80 << 10, A100, 2),  # 164 kB / (80 + 1)
        (4, 32, 0, RTX4090, 12),  # 48 warps
        (1, 16, 0, RTX4090, 24),
    ],
)
def test_blocks_per_multiprocessor(warps, registers, shared, target, blocks):
    assert target.blocks(Resources(warps, shared, registers, 0)) == blocks


def test_unknown_registers_leave_the_number_unknown():
    kernel = Resources(4, 0, None, None)
    assert H100.blocks(kernel) is None
    assert H100.misfit(kernel) is None


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (Resources(64, 0, 16, 0), "2048 threads"),
        (Resources(4, (227 << 10) + 1, 16, 0), "232449 bytes of shared memory"),
        (Resources(4, 0, 16, 0, ctas=32), "num_ctas is 32"),
        (Resources(4, 0, 16, 0, tensor_columns=513), "tensor memory"),
        (Resources(32, 0, 255, 0), "more than a multiprocessor has"),
    ],
)
def test_what_compiles_and_cannot_be_launched(kernel, words):
    assert words in H100.misfit(kernel)


def test_grids_have_a_largest_size_along_each_axis():
    kernel = Resources(4, 0, 16, 0)
    assert H100.wrong_grid((2**31 - 1, 65535, 65535), kernel) is None
    assert "65536 programs along y" in H100.wrong_grid((1, 65536, 1), kernel)
    assert "along z" in H100.wrong_grid((1, 1, 65536), kernel)
    assert "along x" in H100.wrong_grid((2**31, 1, 1), kernel)


def test_every_target_can_be_asked_for():
    assert set(words_of(typing.get_type_hints(GymOptions)["compile_for"])) == {"off", *TARGETS}
    assert set(typing.get_args(TargetName)) == set(TARGETS)


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"used": {"warps": 4, "shared": 0, "registers": 8, "spills": 0}},
        {"used": {"warps": -4, "shared": 0, "registers": 8, "spills": 0}, "seconds": 1.0},
        {"used": {"warps": 4, "shared": None, "registers": 8, "spills": 0}, "seconds": 1.0},
        {"used": {"warps": True, "shared": 0, "registers": 8, "spills": 0}, "seconds": 1.0},
        {"used": {"warps": 4, "shared": 0, "registers": 8, "spills": 0, "speedup": 9}, "seconds": 1.0},
        {"used": {"warps": 4, "shared": 0, "registers": 8, "spills": 0, "matrix": 1}, "seconds": 1.0},
        {"used": {"warps": 4, "shared": 0, "registers": 8, "spills": 0, "scalars": -1}, "seconds": 1.0},
        {"refused": {"kind": 1, "message": ""}, "seconds": 1.0},
        {"refused": {"kind": "", "message": "", "offset": -1}, "seconds": 1.0},
        {"refused": {"kind": "", "message": ""}, "seconds": float("nan")},
        [1],
    ],
)
def test_what_a_compiling_process_claims_is_checked(claim):
    with pytest.raises((ValueError, TypeError, LookupError)):
        Outcome.from_json(claim)


@pytest.mark.parametrize(
    "result",
    [
        Resources(4, 16, 17, 0),
        Resources(4, 16, 17, 0, accumulators=8, scalars=20, matrix=True),
        Refusal("NameError", "s is not defined", 1, 3),
    ],
)
def test_outcomes_travel_as_json(result):
    assert Outcome.from_json(Outcome(result, 0.5).to_json()) == Outcome(result, 0.5)
