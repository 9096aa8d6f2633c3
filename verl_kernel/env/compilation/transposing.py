# SPDX-License-Identifier: Apache-2.0
"""How long tiles that are transposed on their way into shared memory keep it busy, after Triton's code for a target.

`wgmma` of compute capability 9.0 takes a 32-bit factor only with the depth along rows of shared memory. So Triton
copies a factor that lies otherwise in memory word by word, 4 bytes a lane, where it copies others by 16 bytes (and its
code for other targets copies all by 16). Words of a warp then lie in few of the 32 banks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import product
from math import prod

_WORD, _LINE, _BANKS = 4, 128, 32
_CHUNK, _ROWS = 16, 8
"""Bytes that a swizzle keeps together, and rows after which it repeats where a row has 128 bytes (PTX ISA, "Shared
Memory Matrix Layout")."""
_LISTS = r"sizePerThread = \[(.*?)\], threadsPerWarp = \[(.*?)\], .*?order = \[(.*?)\]"
_SPREAD = re.compile(rf"^(#\w+) = #ttg\.blocked<\{{{_LISTS}", re.MULTILINE)
_STORED = re.compile(
    r"^(#\w+) = #ttg\.nvmma_shared<\{swizzlingByteWidth = (\d+), transposed = (\w+), elementBitWidth = (\d+)",
    re.MULTILINE,
)
_STAGING = re.compile(
    r"ttg\.(async_copy_global_to_local|local_alloc|local_store) .*?tensor<([\dx]+)x(?:!tt\.ptr<)?(\w+?)>?, (#\w+)>"
    r".*? -> (?:!ttg\.memdesc)?<[^,]*, (#\w+)"
)
_BYTES = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2}


@dataclass(frozen=True)
class Spread:
    """How a tile is spread over the lanes of a warp, by dimension; the fastest dimension comes first in `order`."""

    sizes: tuple[int, ...]
    lanes: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Staging:
    """What a kernel's code brings into shared memory, each instruction counted once."""

    size: int = 0
    """Bytes."""
    cycles: int = 0
    """Cycles of the banks of shared memory for those of them that are written word by word."""


def staging(text: str) -> Staging:
    """Read what is staged for products from the text of a kernel in Triton's GPU dialect."""
    spreads = {name: Spread(*map(_numbers, lists)) for name, *lists in _SPREAD.findall(text)}
    rows = {
        name: (int(width), transposed == "true", int(bits)) for name, width, transposed, bits in _STORED.findall(text)
    }
    total = Staging()
    for verb, shape, kind, spread, stored in _STAGING.findall(text):
        if spread in spreads and stored in rows and kind in _BYTES:
            sizes = tuple(map(int, shape.split("x")))
            cycles = _cycles(sizes, spreads[spread], *rows[stored], is_copied=verb.startswith("async"))
            total = Staging(total.size + prod(sizes) * _BYTES[kind], total.cycles + cycles)
    return total


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _cycles(
    shape: tuple[int, ...], spread: Spread, width: int, is_transposed: bool, bits: int, *, is_copied: bool
) -> int:
    """Return the cycles for a tile that is written word by word; 0 if lanes write vectors."""
    row_dim = 0 if is_transposed else 1
    if len(shape) != 2 or bits != 8 * _WORD or width == 0 or spread.order[0] == row_dim:
        return 0
    lines: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    places = set(product(*map(_places, spread.lanes, spread.sizes, shape)))
    for place in places:
        along, row = place[row_dim], place[1 - row_dim]
        # Copied words are written when their line is there: the lines of a warp come one after the other.
        line = (along, row * _WORD // _LINE) if is_copied else (0, 0)
        lines[line][_bank(row, along, width)] += 1
    # The cache that lines come from has the same banks.
    passes = sum(max(banks.values()) + is_copied for banks in lines.values())
    return prod(shape) // len(places) * passes


def _places(lanes: int, size: int, length: int) -> range:
    """Return where a warp's lanes begin along a dimension, each once."""
    return range(0, min(lanes * size, length), size)


def _bank(row: int, along: int, width: int) -> int:
    """Return the bank of a word: 16-byte chunks of a row are swapped by the row's number."""
    chunk, within = divmod(along * _WORD % width, _CHUNK)
    swap = row * width // _LINE % _ROWS % (width // _CHUNK)
    return (row * width + (chunk ^ swap) * _CHUNK + within) // _WORD % _BANKS
