# SPDX-License-Identifier: Apache-2.0
"""Finds smaller copies of a task that run the same ops, for a CPU to judge in place of a task that is too large.

A copy is the task's source with its sizes reduced by one rule. It is accepted if its dry pass runs the same ops as at
the true size, its output is not empty and it keeps to the bounds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.bounds import ALLOWED, LARGER, WANTED, Bounds
from verl_kernel.env.true_size.dry_pass import DryForward, dry_forward
from verl_kernel.errors import TaskError

# The sizes of a task: integers at module level, in `get_inputs` and in `get_init_inputs`.
#
# A task in KernelBench's form does not say which of its numbers are sizes. It usually writes them in these places;
# numbers in the class itself (kernel sizes, paddings, defaults) stay unchanged.


_FUNCTIONS = ("get_inputs", "get_init_inputs")
_LARGEST = 1 << 62


def sizes_of(source: str) -> tuple[int, ...]:
    """Return the distinct integers of a task above 4, ascending; smaller ones are axes or ranks, never sizes."""
    finder = _Sizes({})
    finder.read(ast.parse(source))
    return tuple(sorted(finder.numbers))


def resized(source: str, sizes: Mapping[int, int]) -> str:
    """Return the task's source with other sizes.

    Args:
        source: source of the task.
        sizes: the new number for each number that changes.
    """
    tree = ast.parse(source)
    _Sizes(sizes).read(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Sizes(ast.NodeTransformer):
    """Finds the sizes and replaces them."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._sizes = sizes
        self.numbers: set[int] = set()

    def read(self, tree: ast.Module) -> None:
        """Visit the statements that may hold sizes."""
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                node.value = cast(ast.expr, self.visit(node.value))
            elif isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
                node.body = [cast(ast.stmt, self.visit(part)) for part in node.body]

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the largest expressions that consist of numbers only, such as `16 * 1024`."""
        value = _number(node) if isinstance(node, ast.expr) else None
        if value is None:
            return self.generic_visit(node)
        if value <= 4:
            return node
        self.numbers.add(value)
        return ast.copy_location(ast.Constant(self._sizes[value]), node) if value in self._sizes else node


def _number(node: ast.expr) -> int | None:
    """Return the value of an expression of integers, or None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp):
        return None
    lhs, rhs = _number(node.left), _number(node.right)
    if lhs is None or rhs is None or max(abs(lhs), abs(rhs)) > _LARGEST:
        return None
    return _value(node.op, lhs, rhs)


def _value(operator: ast.operator, lhs: int, rhs: int) -> int | None:
    if isinstance(operator, ast.Mult):
        return lhs * rhs
    if isinstance(operator, ast.Add):
        return lhs + rhs
    if isinstance(operator, ast.Sub):
        return lhs - rhs
    if isinstance(operator, ast.FloorDiv) and rhs:
        return lhs // rhs
    if isinstance(operator, ast.LShift | ast.Pow) and 0 <= rhs <= 62 and abs(lhs) <= 16:
        return lhs << rhs if isinstance(operator, ast.LShift) else lhs**rhs
    return None


# Reduction of sizes: all by one power of two, or the largest ones halved one after another.


UNCHANGED = 16
"""Numbers up to this one stay as they are: channels of an image, kernel sizes. `tl.dot` takes nothing below 16."""
WIDTHS = 128
"""Numbers up to this one, such as the width of a head, stay as they are if a copy fits with them."""
FLOOR = 8
"""No size becomes smaller than this."""
_LEAST_ROWS = 32
"""Fewest rows of a copy where the task has more than `WIDTHS`, so that a reduction has something to reduce."""
_MOST_TRIES = 120
"""Most dry passes in search of a copy by halving."""
Sizes = Mapping[int, int]
"""The new size for each size that changes."""


def divided(
    sizes: Sequence[int],
    factor: int,
    distinct: bool = True,
    unchanged_up_to: int = UNCHANGED,
    counts: Collection[int] = (),
) -> dict[int, int]:
    """Divide sizes by one factor: odd ones stay odd, and with `distinct` different ones stay different and in order.

    If widths are kept, sizes stay divisible by the powers of two up to a width that divide them, and powers of two stay
    powers of two: kernels whose tiles fit the task exactly may omit masks.

    Args:
        sizes: sizes in order.
        factor: the factor.
        distinct: whether different sizes stay different.
        unchanged_up_to: largest size that stays unchanged.
        counts: sizes that only count rows (`counts_of`): they become smaller all the same.
    """
    new: dict[int, int] = {}
    last, widths = 0, {size for size in sizes if UNCHANGED < size <= unchanged_up_to and size not in counts}
    smallest = 2 * max(widths, default=0)  # with as many groups as channels, nothing would be left to normalise
    for size in sizes:
        if size <= unchanged_up_to and size not in counts:
            continue
        tile = _tile(size) if unchanged_up_to > UNCHANGED and size not in counts else 1
        floor = _least_count(size) if size in counts else max(FLOOR + size % 2, smallest + size % 2 if smallest else 0)
        value = -(-max(floor, _quotient(size, factor)) // tile) * tile
        while distinct and (value <= last or value in widths):
            value += value if size in counts and _is_power(size) and _is_power(value) else _step_up(size, value, tile)
        new[size], last = value, value
    return new


def _least_count(size: int) -> int:
    """Return how many rows a copy has at least: some for a reduction, a few where there are only some, as of heads."""
    return (_LEAST_ROWS if size > WIDTHS else 2) + size % 2


def counts_of(true: DryForward) -> frozenset[int]:
    """Return the sizes that only count rows: lengths of leading axes of inputs, and of no other axis.

    A kernel's tiles, loops and settings hang on the length of a row, a head or a weight, which a copy keeps if it can:
    `tl.arange` takes powers of two only, and `tl.dot` nothing below 16.
    """
    input_shapes, output_shapes = true.inputs.shapes, true.output.shapes
    leading = {size for shape in input_shapes for size in shape[:-1]}
    rows = {shape[-1] for shape in (*input_shapes, *output_shapes) if shape}
    weights = {size for shape in true.weight_shapes for size in shape}
    return frozenset(leading - rows - weights)


def _step_up(size: int, value: int, tile: int) -> int:
    """Return the step from a new size to the next larger one."""
    if tile > 1 and _is_power(size) and _is_power(value):
        return value
    return max(tile, 2 if value < 4 * UNCHANGED else UNCHANGED)


def _quotient(size: int, factor: int) -> int:
    quotient = max(1, size // factor)
    return quotient + (size % 2 == 1 and quotient % 2 == 0)


def halved(sizes: Sequence[int], fits: Callable[[Sizes], bool | None]) -> dict[int, int] | None:
    """Halve the largest size that can be halved, repeatedly, until the task fits.

    Args:
        sizes: sizes of the task.
        fits: whether the task with these sizes fits; None if it runs other ops, or fails.

    Returns:
        The new sizes, or None if it never fits.
    """
    new = {size: size for size in sizes if size > 4}
    stuck: set[int] = set()
    for _ in range(_MOST_TRIES):
        largest = max((size for size in new if new[size] > 4 and size not in stuck), key=new.__getitem__, default=None)
        if largest is None:
            return None
        attempt = {**new, largest: _quotient(new[largest], 2)}
        fit = fits(attempt)
        if fit:
            return attempt
        if fit is None or attempt == new:
            stuck.add(largest)
        else:
            new = attempt
    return None


def varied(sizes: Sizes, random: Random) -> Iterator[dict[int, int]]:
    """Yield random sizes a little larger than these; at first many of them change, later one."""
    changeable = [size for size in sizes if size > UNCHANGED]
    for count in (len(changeable), max(1, len(changeable) // 2), 1, 1, 1):
        changed = random.sample(changeable, count) if changeable else []
        yield {**sizes, **{size: _larger_size(size, sizes[size], random) for size in changed}}


def _larger_size(size: int, value: int, random: Random) -> int:
    """Return a size larger by a quarter at most, or by one step, with as many factors of two as possible."""
    tile = min(_tile(size), _tile(value))
    if value < WIDTHS:
        tile = max(2, min(tile, _power_below(value // 4)))
    elif _is_power(size) and _is_power(value):
        return value * random.choice((1, 2))
    return value + tile * random.randint(0, max(1, value // 4 // tile))


def _tile(size: int) -> int:
    """Return the largest power of two, at most `WIDTHS`, that divides a size."""
    return min(size & -size, WIDTHS)


def _power_below(size: int) -> int:
    """Return the largest power of two that is not larger than a size."""
    return 1 << size.bit_length() >> 1


def _is_power(size: int) -> bool:
    return _power_below(size) == size


_MOST_HALVINGS = 24


@dataclass(frozen=True)
class Copy:
    """A task at other sizes."""

    task: Task
    sizes: Sizes
    """The new size for each size of the task that changes."""
    dry: DryForward

    def keeps_to(self, bounds: Bounds) -> bool:
        """Whether its forward keeps to the bounds."""
        return bounds.hold(self.dry.traffic, self.dry.flops, self.dry.tensor_bytes)


@dataclass(frozen=True)
class Shrunk:
    """A task that is judged at reduced sizes."""

    true: DryForward
    copies: tuple[Copy, ...]
    """One or two copies: the first for most trials, the second larger where the bounds allow it."""


def shrink(task: Task, device: DeviceBackend, secret: bytes) -> Shrunk:
    """Make two reduced copies of a task with sizes that depend on a secret; one copy where no other size works.

    Raises:
        TaskError: its forward cannot be followed without data, or no copy is accepted.
    """
    true = dry_forward(task, device)
    copies = _Copies(task, device, true)
    small, large = copies.base(sizes_of(task.reference))
    if small is None:
        raise TaskError(_refusal(task, true))
    random = Random(seed_of(b"sizes", secret, task.fingerprint.encode()))
    first = copies.varied(small, random, [])
    second = copies.varied(large or small, random, [first.task.reference])
    pair = sorted((first, second), key=lambda copy: (copy.dry.traffic, copy.dry.flops))
    distinct = {copy.task.reference: copy for copy in (*pair, small)}
    return Shrunk(true, tuple(distinct.values())[:2])


class _Copies:
    """Makes copies of one task and decides which to accept."""

    def __init__(self, task: Task, device: DeviceBackend, true: DryForward) -> None:
        self._task, self._device, self._ops, self._counts = task, device, true.ops, counts_of(true)

    def base(self, sizes: Sequence[int]) -> tuple[Copy | None, Copy | None]:
        """Return the copy of the wanted size, or else the smallest, and the next larger one unless it is too large."""
        copies: list[Copy] = []
        for unchanged_up_to, counts in (
            (WIDTHS, frozenset[int]()),
            (WIDTHS, self._counts),
            (UNCHANGED, frozenset[int]()),
        ):
            if not (copies and copies[-1].keeps_to(LARGER)):
                copies = self._smaller(sizes, unchanged_up_to, counts)
        if not copies and (halves := halved(sizes, self._fits)) is not None:
            copies = [copy for copy in [self.accepted(halves)] if copy is not None]
        larger = [copy for copy in copies[:-1] if copy.keeps_to(LARGER)]
        return copies[-1] if copies else None, larger[-1] if larger else None

    def _smaller(self, sizes: Sequence[int], unchanged_up_to: int, counts: Collection[int]) -> list[Copy]:
        """Return allowed copies, the smallest last; numbers up to `unchanged_up_to` stay, except counts."""
        copies: list[Copy] = []
        largest = max(sizes, default=0)
        for factor in range(1, min(_MOST_HALVINGS, largest.bit_length()) if largest > unchanged_up_to else 0):
            copy = self._divided(sizes, 2**factor, unchanged_up_to, counts)
            if copy is None:
                continue
            if copy.keeps_to(ALLOWED):
                copies.append(copy)
            if copy.keeps_to(WANTED):
                break
        return copies

    def varied(self, copy: Copy, random: Random, excluded: Sequence[str]) -> Copy:
        """Return a copy with sizes a little larger than this one's; this copy itself if none is accepted."""
        for sizes in varied(copy.sizes, random):
            candidate = self.accepted(sizes)
            if candidate is not None and candidate.keeps_to(ALLOWED) and candidate.task.reference not in excluded:
                return candidate
        return copy

    def accepted(self, sizes: Sizes) -> Copy | None:
        """Return the copy with these sizes, or None if it runs other ops, returns nothing, or fails."""
        copy = Task(resized(self._task.reference, sizes), self._task.task_id, self._task.entry_point)
        try:
            dry = dry_forward(copy, self._device)
        except TaskError:
            return None
        is_empty = any(tensor.numel() == 0 for tensor in dry.output.tensors)
        return None if is_empty or dry.ops != self._ops else Copy(copy, sizes, dry)

    def _divided(self, sizes: Sequence[int], factor: int, unchanged_up_to: int, counts: Collection[int]) -> Copy | None:
        """Divide all sizes by a factor; different ones stay different if that copy is accepted."""
        tries: list[Callable[[], Sizes]] = [
            lambda: divided(sizes, factor, unchanged_up_to=unchanged_up_to, counts=counts),
            lambda: divided(sizes, factor, distinct=False, unchanged_up_to=unchanged_up_to, counts=counts),
        ]
        return next((copy for sizes_of_try in tries if (copy := self.accepted(sizes_of_try())) is not None), None)

    def _fits(self, sizes: Sizes) -> bool | None:
        copy = self.accepted(sizes)
        return None if copy is None else copy.keeps_to(ALLOWED)


def _refusal(task: Task, true: DryForward) -> str:
    return (
        f"reference {task.task_id} cannot serve as a task: its forward moves {true.traffic / 1e9:.1f} GB and takes "
        f"{true.flops / 1e9:.0f} GFLOP, too much for this machine, and no copy with smaller sizes runs the same ops: "
        "write its sizes as numbers at module level, or make them smaller"
    )
