# SPDX-License-Identifier: Apache-2.0
"""Tiles that code for a target transposes on their way to products, beside what its PTX copies word by word.

Run as a program, in a process of its own that assumes the targets, it compiles one product in several forms for them
and prints what comes of each as a line of JSON.
"""

import json
import re
from dataclasses import asdict

import pytest
import triton
import triton.language as tl

from tests.env.processes import printed
from verl_kernel.env.compilation import compiler
from verl_kernel.env.compilation.rebuilding import Tensor
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.compilation.transposing import Staging, staging

NAMES = ("sm_80", "sm_90")
SIZE, THREADS = 1024, 128
STRIDES = {"rows": (SIZE, 1), "columns": (1, SIZE)}
"""Of the second factor, which lies by rows or by columns."""
TILES = (64, 64, 32)
FORMS = [("float32", "rows", 1), *((dtype, lies, 3) for dtype in ("float32", "float16") for lies in STRIDES)]
_COPY = re.compile(r"cp\.async\.c[ag]\.shared\.global .*?, (0x\w+)[,;]")
WORDS = 32 * 128
"""Elements of a tile of the second factor."""
LAYOUTS = """
#spread = #ttg.blocked<{sizePerThread = [1, %d], threadsPerWarp = [1, 32], warpsPerCTA = [8, 1], order = [1, 0]}>
#stored = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = %s, elementBitWidth = 32}>
%%y = ttg.%s %%x, %%z : tensor<32x128x%s, #spread> -> <32x128xf32, #stored, #smem, mutable>
"""


@triton.jit
def multiply(a, b, out, size, stride_k, stride_n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column, inner = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, size, K):
        x = tl.load(a + row[:, None] * size + (start + inner)[None, :])
        y = tl.load(b + (start + inner)[:, None] * stride_k + column[None, :] * stride_n)
        total = tl.dot(x, y, total)
    tl.store(out + row[:, None] * size + column[None, :], total)


@pytest.fixture(scope="module")
def compiled():
    said = printed("-m", "tests.env.compilation.test_transposing")
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {(line["target"], line["dtype"], line["lies"], line["stages"]): line for line in lines}


@pytest.mark.processes
@pytest.mark.slow
def test_only_float32_rows_for_wgmma_are_transposed(compiled):
    transposing = [key for key, line in compiled.items() if line["used"]["transposing"]]
    assert transposing == [("sm_90", "float32", "rows", 1), ("sm_90", "float32", "rows", 3)]


@pytest.mark.processes
@pytest.mark.slow
def test_transposed_bytes_are_what_the_ptx_copies_word_by_word(compiled):
    pipelined = {key: line for key, line in compiled.items() if key[0] == "sm_90" and key[3] > 1}
    for key, line in pipelined.items():
        sizes = [int(size, 16) for size in line["copies"]]
        assert THREADS * sum(sizes) == line["used"]["staged"], key
        # A line of 128 bytes is read, and its eight words lie in two banks: 5 cycles for 8 words.
        assert line["used"]["transposing"] == THREADS * sizes.count(4) * 5 // 8, key


@pytest.mark.parametrize(
    ("size", "transposed", "verb", "kind", "cycles"),
    [
        (4, "true", "async_copy_global_to_local", "!tt.ptr<f32>", WORDS // 32 * (4 + 16)),
        (4, "true", "local_store", "f32", WORDS // 32 * 16),
        (1, "true", "async_copy_global_to_local", "!tt.ptr<f32>", WORDS // 32 * (1 + 4)),
        (4, "false", "async_copy_global_to_local", "!tt.ptr<f32>", 0),
    ],
)
def test_cycles_are_reads_of_lines_and_conflicts_of_banks(size, transposed, verb, kind, cycles):
    assert staging(LAYOUTS % (size, transposed, verb, kind)) == Staging(4 * WORDS, cycles)


def test_what_is_no_tile_of_known_layouts_counts_for_nothing():
    known = LAYOUTS % (4, "true", "local_store", "f32")
    assert staging(known.replace("#ttg.blocked", "#ttg.linear")) == staging("") == Staging()
    assert staging(known.replace("32x128xf32, #spread", "32x128xf8E4M3FN, #spread")) == Staging()
    assert not staging(known.replace("elementBitWidth = 32", "elementBitWidth = 16")).cycles


def main() -> None:
    out, options = Tensor("float32", True), {"grid": (1,), "num_warps": THREADS // 32}
    for target in map(TARGETS.__getitem__, NAMES):
        compiler.prepare(target)
        multiply.device_caches.clear()
        for dtype, lies, stages in FORMS if target.name == "sm_90" else FORMS[1:2]:
            factor = Tensor(dtype, True)
            made = multiply.warmup(factor, factor, out, SIZE, *STRIDES[lies], *TILES, num_stages=stages, **options)
            used = target.resources(made.metadata._asdict(), made.asm, "")
            key = {"target": target.name, "dtype": dtype, "lies": lies, "stages": stages}
            print(json.dumps({**key, "used": asdict(used), "copies": _COPY.findall(made.asm["ptx"])}))


if __name__ == "__main__":
    main()
