# SPDX-License-Identifier: Apache-2.0
"""What is said of kernels for AMD's GPUs, beside what LLVM wrote into the object, its directives and its occupancy.

Run as a program, in a process of its own that assumes the targets which are named, it compiles kernels of several kinds
for them and prints what comes of each as a line of JSON.
"""

import base64
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import msgpack
import pytest

from benchmarks.emulator_kernels import matmul, softmax
from tests.env.processes import printed
from verl_kernel.env.compilation import compiler
from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.compilation.rebuilding import Tensor
from verl_kernel.env.compilation.targets import TARGETS

NAMES = ["gfx942", "gfx950", "gfx1100"]
pytestmark = [pytest.mark.exhaustive, pytest.mark.processes]
_NOTE, _METADATA = 7, 32
"""Kind of a section that holds notes, and of the note with AMD's metadata."""
HALF, SINGLE = Tensor("float16", True), Tensor("float32", True)


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
    said = printed("-m", "tests.env.compilation.test_amd", *NAMES)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {(line["target"], line["kernel"]): line for line in lines}


def test_resources_are_those_of_object_and_directives(compiled):
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


def dot(*sizes: int, of: Tensor = HALF, **options: Any) -> Callable[[], Any]:
    return lambda: matmul.warmup(of, of, SINGLE, 1024, 1024, 1024, *sizes, "ieee", grid=(1,), **options)


KERNELS: dict[str, Callable[[], Any]] = {
    "copy": compiler.compile_trial_kernel,
    "rows": lambda: softmax.warmup(SINGLE, SINGLE, 4096, BLOCK=4096, grid=(1,), num_warps=8),
    "rows of one warp": lambda: softmax.warmup(SINGLE, SINGLE, 256, BLOCK=256, grid=(1,), num_warps=1),
    "half products": dot(64, 64, 32),
    "float32 products": dot(32, 32, 32, of=SINGLE),
    "large half products": dot(128, 128, 64, num_warps=8),
    "spilling products": dot(256, 256, 64, num_warps=4),
}
SLOW = "spilling products"
"""Compiled for the first target only: more registers than there are take LLVM seconds."""


def main() -> None:
    for number, target in enumerate(map(TARGETS.__getitem__, sys.argv[1:])):
        compiler.prepare(target)
        for function in (matmul, softmax, compiler.copy_kernel):
            function.device_caches.clear()
        for name, make in KERNELS.items():
            if number and name == SLOW:
                continue
            made = make()
            used = target.resources(made.metadata._asdict(), made.asm, "")
            texts = {"assembly": made.asm["amdgcn"], "object": base64.b64encode(made.asm["hsaco"]).decode()}
            found = {"target": target.name, "kernel": name, "used": asdict(used), "shared": made.metadata.shared}
            print(json.dumps({**found, **texts}))


if __name__ == "__main__":
    main()
