# SPDX-License-Identifier: Apache-2.0
"""Small modules of PTX, and what their instructions give."""

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.kernel import Buffer, Kernel

Words = np.ndarray
Columns = Mapping[str, Words]
_REGISTERS = {1: "pred", 16: "b16", 32: "b32", 64: "b64"}


def entry(body: str, parameters: int = 0, declarations: str = "", head: str = "") -> str:
    """A module of one kernel with parameters `p0`, `p1`, ... of 64 bits."""
    listed = ", ".join(f".param .u64 p{number}" for number in range(parameters))
    return (
        f".version 8.7\n.target sm_89\n.address_size 64\n{head}\n.visible .entry kernel({listed})\n"
        f"{{\n{declarations}\n{body}\n}}\n"
    )


@functools.lru_cache(maxsize=256)
def kernel(text: str, warps: int = 1, shared: int = 0) -> Kernel:
    return Kernel(text, warps, shared)


def aligned(size: int, dtype: type = np.uint8, multiple: int = 64) -> Words:
    """Zeros that begin at a multiple of so many bytes."""
    raw = np.zeros(size + multiple, np.uint8)
    return raw[-raw.ctypes.data % multiple :][:size].view(dtype)


def buffer(array: Words, written: Words | None = None) -> Buffer:
    return Buffer(array.ctypes.data, array.nbytes, 0 if written is None else written.ctypes.data)


def launch(text: str, arrays: Sequence[Words], *, warps: int = 1, shared: int = 0, **more: Any) -> Kernel:
    made = Kernel(text, warps, shared)
    counted(made, arrays, **more)
    return made


@contextlib.contextmanager
def fails(kind: str, words: str = "") -> Iterator[None]:
    """Expect a fault of a kind, whose sentence has these words."""
    with pytest.raises(Fault, match=words or None) as caught:
        yield
    assert caught.value.kind == kind


def counted(made: Kernel, arrays: Sequence[Words], blocks: int = 1, **more: Any) -> LaunchCount:
    """Launch a kernel on arrays, in the order of its parameters."""
    addresses, buffers = [array.ctypes.data for array in arrays], [buffer(array) for array in arrays]
    return made.launch((blocks,), addresses, buffers, **more)


def executed(count: LaunchCount, by_warp: bool = False) -> Counter[str]:
    """How many lanes (or warps) executed each opcode; lanes that a guard held back are included."""
    entered, times = count.warps_entered if by_warp else count.lanes, Counter[str]()
    for (start, end), number in zip(count.module.blocks, entered.tolist(), strict=True):
        for item in count.program.instructions[start:end]:
            times[item.opcode] += number
    return times


def evaluate(code: str, inputs: Columns, outputs: Mapping[str, type], *, is_uniform: bool = False) -> dict[str, Words]:
    """Run code once for each element of its inputs.

    Args:
        code: may read `%name` for each input and writes `%name` for each output.
        inputs: arrays of one length; a bool is a predicate.
        outputs: NumPy's type of each output.
        is_uniform: one element a warp, in registers that its lanes share, instead of one a lane.
    """
    count = len(next(iter(inputs.values())))
    blocks = count if is_uniform else -(-count // 32)
    bits = [array.astype(np.uint8) if array.dtype == bool else array for array in inputs.values()]
    held = [np.pad(array, (0, (blocks if is_uniform else 32 * blocks) - count)) for array in bits]
    given = [np.zeros(32 * blocks, np.uint32 if kind is bool else kind) for kind in outputs.values()]
    kinds = {**{name: array.dtype for name, array in inputs.items()}, **outputs}
    sizes = [(name, 1 if np.dtype(kind) == bool else 8 * np.dtype(kind).itemsize) for name, kind in kinds.items()]
    text = _module(code, tuple(sizes[: len(inputs)]), tuple(sizes[len(inputs) :]), is_uniform)
    counted(kernel(text), [*held, *given], blocks)
    found = {}
    for name, kind, array in zip(outputs, outputs.values(), given, strict=True):
        if is_uniform:
            rows = array.reshape(blocks, 32)
            assert (rows == rows[:, :1]).all()
            array = rows[:, 0]
        found[name] = array[:count].astype(kind)
    return found


def each(lines: Mapping[str, str], kind: type, inputs: Columns, *, is_uniform: bool = False) -> dict[str, Words]:
    """Run instructions, each of which writes `{d}`, on the same inputs; gives each one's results by its name."""
    names = {name: f"d{number}" for number, name in enumerate(lines)}
    code = "\n".join(line.format(d=f"%{names[name]}") for name, line in lines.items())
    found = evaluate(code, inputs, dict.fromkeys(names.values(), kind), is_uniform=is_uniform)
    return {name: found[own] for name, own in names.items()}


def compare(
    lines: Mapping[str, str],
    kind: type,
    inputs: Columns,
    wanted: Callable[..., int | None],
    *,
    is_nan: Callable[[int], bool] | None = None,
    is_uniform: bool = False,
) -> None:
    """Compare what instructions give with `wanted(name, *operands)`; None is NaN, any that `is_nan` knows."""
    rows = list(zip(*(map(int, column) for column in inputs.values()), strict=True))
    for name, found in each(lines, kind, inputs, is_uniform=is_uniform).items():
        for operands, got in zip(rows, map(int, found), strict=True):
            bits = wanted(name, *operands)
            is_right = is_nan(got) if bits is None else got == bits
            assert is_right, (name, *map(hex, (*operands, got)), bits)


def ways(kinds: Iterable[Any]) -> list[Any]:
    """Each kind in registers of each lane and in those that lanes share; `make test` has one of the two in turn."""
    found = []
    for (number, kind), is_uniform in itertools.product(enumerate(kinds), (False, True)):
        values = kind if isinstance(kind, tuple) else (kind,)
        marks = [] if is_uniform == bool(number % 2) else [pytest.mark.exhaustive]
        name = "-".join(map(str, (*values, "uniform" if is_uniform else "by lane")))
        found.append(pytest.param(*values, is_uniform, marks=marks, id=name))
    return found


def paired(row: Words) -> Words:
    """Words of two halves: each of a row, and above it the one before."""
    return row | np.roll(row, 1).astype(np.uint32) << 16


@functools.lru_cache(maxsize=256)
def _module(code: str, inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[str, int]], is_uniform: bool) -> str:
    declared = [f".reg .{_REGISTERS[bits]} %{name};" for name, bits in (*inputs, *outputs)]
    lines = ["mov.u32 %block, %ctaid.x;", "mov.u32 %lane, %tid.x;", "mad.lo.s32 %own, %block, 32, %lane;"]
    place = "%block" if is_uniform else "%own"
    for number, (name, bits) in enumerate(inputs):
        lines += _at(number, place, max(8, bits) // 8)
        if bits == 1:
            lines += ["ld.global.b8 %byte, [%at];", f"setp.ne.b16 %{name}, %byte, 0;"]
        else:
            lines.append(f"ld.global.b{bits} %{name}, [%at];")
    lines.append(code)
    for number, (name, bits) in enumerate(outputs):
        lines += _at(len(inputs) + number, "%own", 4 if bits == 1 else bits // 8)
        if bits == 1:
            lines += [f"selp.b32 %word, 1, 0, %{name};", "st.global.b32 [%at], %word;"]
        else:
            lines.append(f"st.global.b{bits} [%at], %{name};")
    declared.append(".reg .b32 %block, %lane, %own, %word; .reg .b64 %at, %from; .reg .b16 %byte;")
    return entry("\n".join([*lines, "ret;"]), len(inputs) + len(outputs), "\n".join(declared))


def _at(parameter: int, place: str, size: int) -> list[str]:
    return [f"ld.param.u64 %from, [p{parameter}];", f"mad.wide.u32 %at, {place}, {size}, %from;"]


def cross(*values: Sequence[int], dtype: type = np.uint32) -> list[Words]:
    """All combinations of values, as one array for each place."""
    bits = 8 * np.dtype(dtype).itemsize
    grids = np.meshgrid(*(np.array([value & (1 << bits) - 1 for value in row], dtype) for row in values), indexing="ij")
    return [grid.ravel() for grid in grids]
