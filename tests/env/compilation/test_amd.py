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

NAMES = ["gfx942", "gfx950", "gfx1100"]
pytestmark = [pytest.mark.exhaustive, pytest.mark.processes]
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


def test_resources_are_those_in_the_object_and_of_the_directives(compiled):
    """LLVM counts waves of a SIMD, and does not know the shared memory, which a launch adds."""
    assert len(compiled) == 19
    assert any(made["used"]["spills"] for made in compiled.values())
    assert any(made["used"]["accumulators"] for made in compiled.values())
    for key, made in compiled.items():
        used, said, text = made["used"], metadata(base64.b64decode(made["object"])), made["assembly"]
        assert used["registers"] == said[".vgpr_count"] > 0, key
        assert used["registers"] == number(r"\.amdhsa_next_free_vgpr (\d+)", text), key
        assert used["accumulators"] == said.get(".agpr_count"), key
        assert used["scalars"] == said[".sgpr_count"] > 0, key
        assert used["spills"] == 4 * said[".vgpr_spill_count"], key
        assert used["shared"] == made["shared"] + said[".group_segment_fixed_size"], key
        target = TARGETS[key[0]]
        assert used["warps"] * target.lanes == said[".max_flat_workgroup_size"], key
        assert target.lanes == said[".wavefront_size"], key
        waves = target.blocks(Resources(**{**used, "shared": 0, "warps": 1}))
        assert waves == 4 * number(r"; Occupancy: (\d+)", text), key
        if key[0] != "gfx1100":
            assert used["registers"] - used["accumulators"] <= number(r"\.amdhsa_accum_offset (\d+)", text), key


def test_two_compute_units_of_a_radeon_work_as_one(compiled):
    pairs = {key[0] for key, made in compiled.items() if ".amdhsa_workgroup_processor_mode 1" in made["assembly"]}
    assert pairs == {"gfx1100"}
