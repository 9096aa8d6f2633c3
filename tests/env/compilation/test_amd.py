# SPDX-License-Identifier: Apache-2.0
"""What is said of kernels for AMD's GPUs, beside what LLVM wrote into the object, its directives and its occupancy."""

import base64
import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.compilation.targets import TARGETS

MI300X, MI355X, RADEON = TARGETS["gfx942"], TARGETS["gfx950"], TARGETS["gfx1100"]
NAMES = [MI300X.name, MI355X.name, RADEON.name]
_NOTE, _METADATA = 7, 32
"""Kind of a section that holds notes, and of the note with AMD's metadata."""


def notes(elf: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each note of a 64-bit object."""
    (sections,), (size, count) = struct.unpack_from("<Q", elf, 0x28), struct.unpack_from("<HH", elf, 0x3A)
    for number in range(count):
        _, kind, _, _, start, length = struct.unpack_from("<IIQQQQ", elf, sections + number * size)
        end = start + length if kind == _NOTE else start
        while start < end:
            name, content, sort = struct.unpack_from("<III", elf, start)
            begin = start + 12 + -(-name // 4) * 4
            yield sort, elf[begin : begin + content]
            start = begin + -(-content // 4) * 4


def metadata(elf: bytes) -> dict[str, Any]:
    """What LLVM says of the only kernel of an object."""
    (kernel,) = msgpack.unpackb(next(content for kind, content in notes(elf) if kind == _METADATA))["amdhsa.kernels"]
    return kernel


def number(pattern: str, text: str) -> int:
    return int(re.search(pattern, text)[1])


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, str], dict[str, Any]]:
    """The kernels of `amd_kernels`, by target and name."""
    command = [sys.executable, "-m", "tests.env.compilation.amd_kernels", *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(line["target"], line["kernel"]): line for line in lines}


@pytest.mark.processes
def test_resources_are_those_in_the_object(compiled):
    assert len(compiled) == 19
    assert any(made["used"]["spills"] for made in compiled.values())
    assert any(made["used"]["accumulators"] for made in compiled.values())
    for key, made in compiled.items():
        used, said = made["used"], metadata(base64.b64decode(made["object"]))
        assert used["registers"] == said[".vgpr_count"] > 0, key
        assert used["accumulators"] == said.get(".agpr_count"), key
        assert used["scalars"] == said[".sgpr_count"] > 0, key
        assert used["spills"] == 4 * said[".vgpr_spill_count"], key
        assert used["shared"] == made["shared"] + said[".group_segment_fixed_size"], key
        assert used["warps"] * TARGETS[key[0]].lanes == said[".max_flat_workgroup_size"], key
        assert TARGETS[key[0]].lanes == said[".wavefront_size"], key


@pytest.mark.processes
def test_resources_are_those_of_the_directives(compiled):
    for key, made in compiled.items():
        used, text = made["used"], made["assembly"]
        assert used["registers"] == number(r"\.amdhsa_next_free_vgpr (\d+)", text), key
        if key[0] != "gfx1100":
            assert used["registers"] - used["accumulators"] <= number(r"\.amdhsa_accum_offset (\d+)", text), key


@pytest.mark.processes
def test_occupancy_by_registers_is_that_of_llvm(compiled):
    """LLVM counts waves of a SIMD, and does not know the shared memory, which a launch adds."""
    for key, made in compiled.items():
        waves = TARGETS[key[0]].blocks(Resources(**{**made["used"], "shared": 0, "warps": 1}))
        assert waves == 4 * number(r"; Occupancy: (\d+)", made["assembly"]), key


@pytest.mark.processes
def test_two_compute_units_of_a_radeon_work_as_one(compiled):
    pairs = {key[0] for key, made in compiled.items() if ".amdhsa_workgroup_processor_mode 1" in made["assembly"]}
    assert pairs == {"gfx1100"}


@pytest.mark.parametrize(
    ("warps", "registers", "scalars", "shared", "target", "blocks"),
    [
        (4, 64, 20, 0, MI300X, 8),  # 8 waves a SIMD
        (4, 65, 20, 0, MI300X, 7),  # 512 registers / 72, which come in eights
        (4, 512, 20, 0, MI300X, 1),
        (16, 32, 20, 0, MI300X, 2),
        (4, 64, 101, 0, MI300X, 7),
        (1, 8, 20, 0, MI300X, 32),  # a block of one wave needs no barrier
        (2, 8, 20, 0, MI300X, 16),
        (4, 32, 20, 20 << 10, MI300X, 3),  # 64 kB / 20
        (4, 32, 20, 20 << 10, MI355X, 8),  # 160 kB / 20
        (4, 32, 20, 33 << 10, MI355X, 4),  # in units of 1280 bytes
        (4, 96, 101, 0, RADEON, 16),
        (4, 97, 101, 0, RADEON, 12),  # 1536 registers / 120
        (4, 32, 20, 60 << 10, RADEON, 2),  # 128 kB / 60
        (2, 32, 20, 0, RADEON, 32),
    ],
)
def test_blocks_of_a_compute_unit(warps, registers, scalars, shared, target, blocks):
    assert target.blocks(Resources(warps, shared, registers, 0, scalars=scalars)) == blocks


def test_unknown_registers_leave_the_blocks_unknown():
    used = MI300X.resources({"num_warps": 4, "shared": 0}, "s_endpgm", "")
    assert (used.registers, used.spills, used.scalars, used.matrix) == (None, None, None, False)
    assert MI300X.blocks(used) is None


@pytest.mark.parametrize(
    ("warps", "shared", "target", "words"),
    [
        (32, 0, MI300X, "32 warps are 2048 threads"),
        (32, 0, RADEON, None),
        (4, (64 << 10) + 1, MI300X, "65537 bytes of shared memory"),
        (4, (64 << 10) + 1, MI355X, None),
        (4, (160 << 10) + 1, MI355X, "has at most 163840"),
        (4, (64 << 10) + 1, RADEON, "has at most 65536"),
    ],
)
def test_what_compiles_and_cannot_be_launched(warps, shared, target, words):
    found = target.misfit(Resources(warps, shared, 16, 0))
    assert found is None if words is None else words in found


def test_an_axis_of_a_grid_has_fewer_than_two_to_the_32_threads():
    four = Resources(4, 0, 16, 0)
    assert MI300X.wrong_grid(((1 << 24) - 1, 1 << 20, 1 << 20), four) is None
    assert "16777216 programs along x" in MI300X.wrong_grid((1 << 24, 1, 1), four)
    assert RADEON.wrong_grid((1 << 24, 1, 1), four) is None
