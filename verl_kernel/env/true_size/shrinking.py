# SPDX-License-Identifier: Apache-2.0
"""Finds smaller copies of a task that run the same ops: what a CPU judges in place of a task that is too large.

A copy has other numbers where the task writes its sizes, reduced by one rule. It is
accepted if its dry pass runs the op list of the true size, its output is not empty and it keeps to the bounds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.bounds import ALLOWED, LARGER, WANTED, Bounds
from verl_kernel.env.true_size.dry_pass import DryForward, dry_forward
from verl_kernel.errors import TaskError

# The sizes of a task: whole numbers at module level, in `get_inputs` and in `get_init_inputs`.
#
# A task in KernelBench's form says nowhere which of its numbers are sizes. These are the places where it writes them;
# what the class itself holds (kernel sizes, paddings, defaults) is left alone.


_FUNCTIONS = ("get_inputs", "get_init_inputs")
_LARGEST = 1 << 62


def sizes_of(source: str) -> tuple[int, ...]:
    """The distinct whole numbers of a task, ascending; those up to 4 are never sizes (axes, ranks)."""
    finder = _Sizes({})
    finder.read(ast.parse(source))
    return tuple(sorted(finder.found))


def resized(source: str, sizes: Mapping[int, int]) -> str:
    """The task with other sizes.

    Args:
        source: of the task.
        sizes: the new number for each one that changes.
    """
    tree = ast.parse(source)
    _Sizes(sizes).read(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Sizes(ast.NodeTransformer):
    """Finds the numbers and puts others in their place."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._sizes = sizes
        self.found: set[int] = set()

    def read(self, tree: ast.Module) -> None:
        """Visit the statements that may hold sizes."""
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                node.value = cast(ast.expr, self.visit(node.value))
            elif isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
                node.body = [cast(ast.stmt, self.visit(part)) for part in node.body]

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the largest expressions that are numbers alone, such as `16 * 1024`."""
        value = _number(node) if isinstance(node, ast.expr) else None
        if value is None:
            return self.generic_visit(node)
        if value <= 4:
            return node
        self.found.add(value)
        return ast.copy_location(ast.Constant(self._sizes[value]), node) if value in self._sizes else node


def _number(node: ast.expr) -> int | None:
    """The value of an expression of whole numbers, or None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _number(node.left), _number(node.right)
    if left is None or right is None or max(abs(left), abs(right)) > _LARGEST:
        return None
    return _value(node.op, left, right)


def _value(operator: ast.operator, left: int, right: int) -> int | None:
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.FloorDiv) and right:
        return left // right
    if isinstance(operator, ast.LShift | ast.Pow) and 0 <= right <= 62 and abs(left) <= 16:
        return left << right if isinstance(operator, ast.LShift) else left**right
    return None


# How sizes are reduced: all by one power of two, or the largest ones halved one after another.


KEPT, WIDTHS, FLOOR = 16, 128, 8
"""Numbers up to the first stay what they are (channels of an image, kernel sizes), those up to the second (the width of
a head) where a copy fits so; none gets below the third."""
_MOST_TRIES = 120
Sizes = Mapping[int, int]
"""The new size for each one that changes."""


def divided(sizes: Sequence[int], factor: int, distinct: bool = True, kept: int = KEPT) -> dict[int, int]:
    """Sizes over one factor: odd ones stay odd, and with `distinct` different ones stay different and in order.

    Where widths are kept, sizes keep the powers of two up to a width that divide them, and powers of two stay such:
    kernels whose tiles fit the task rightly have no masks.

    Args:
        sizes: in order.
        factor: that divides them.
        distinct: whether different ones stay different.
        kept: the largest one that stays what it is.
    """
    new: dict[int, int] = {}
    last, widths = 0, {size for size in sizes if KEPT < size <= kept}
    least = 2 * max(widths, default=0)  # as many groups as channels would leave nothing to normalise
    for size in sizes:
        if size <= kept:
            continue
        tile = _tile(size) if kept > KEPT else 1
        value = max(FLOOR + size % 2, least + size % 2 if least else 0, _down(size, factor))
        value = -(-value // tile) * tile
        while distinct and (value <= last or value in widths):
            value += _step(size, value, tile)
        new[size], last = value, value
    return new


def _step(size: int, value: int, tile: int) -> int:
    """From a new size to the next larger one."""
    if tile > 1 and _is_power(size) and _is_power(value):
        return value
    return max(tile, 2 if value < 4 * KEPT else KEPT)


def _down(size: int, factor: int) -> int:
    value = max(1, size // factor)
    return value + (size % 2 == 1 and value % 2 == 0)


def halved(sizes: Sequence[int], fits: Callable[[Sizes], bool | None]) -> dict[int, int] | None:
    """Halve the largest size that can be, again and again, until the task fits.

    Args:
        sizes: of the task.
        fits: whether the task with these sizes fits; None if it is another task, or fails.

    Returns:
        The new sizes, or None if it never fits.
    """
    new = {size: size for size in sizes if size > 4}
    stuck: set[int] = set()
    for _ in range(_MOST_TRIES):
        largest = max((size for size in new if new[size] > 4 and size not in stuck), key=new.__getitem__, default=None)
        if largest is None:
            return None
        tried = {**new, largest: _down(new[largest], 2)}
        answer = fits(tried)
        if answer:
            return tried
        if answer is None or tried == new:
            stuck.add(largest)
        else:
            new = tried
    return None


def varied(sizes: Sizes, random: Random) -> Iterator[dict[int, int]]:
    """Sizes a little larger than these, at random; first many of them changed, then one."""
    changeable = [size for size in sizes if size > KEPT]
    for count in (len(changeable), max(1, len(changeable) // 2), 1, 1, 1):
        chosen = random.sample(changeable, count) if changeable else []
        yield {**sizes, **{size: _larger(size, sizes[size], random) for size in chosen}}


def _larger(size: int, value: int, random: Random) -> int:
    """A new size a quarter larger at most, or by one step, with as many factors of two as possible."""
    tile = min(_tile(size), _tile(value))
    if value < WIDTHS:
        tile = max(2, min(tile, _power(value // 4)))
    elif _is_power(size) and _is_power(value):
        return value * random.choice((1, 2))
    return value + tile * random.randint(0, max(1, value // 4 // tile))


def _tile(size: int) -> int:
    """The largest power of two up to a width that divides a size."""
    return min(size & -size, WIDTHS)


def _power(size: int) -> int:
    """The largest power of two up to a size."""
    return 1 << size.bit_length() >> 1


def _is_power(size: int) -> bool:
    return _power(size) == size


_MOST_HALVINGS = 24


@dataclass(frozen=True)
class Copy:
    """A task at other sizes."""

    task: Task
    sizes: Sizes
    """The new size for each one of the task's that changes."""
    dry: DryForward

    def keeps_to(self, bounds: Bounds) -> bool:
        """Whether its forward does."""
        return bounds.hold(self.dry.traffic, self.dry.flops, self.dry.tensor_bytes)


@dataclass(frozen=True)
class Shrunk:
    """A task that is judged at reduced sizes."""

    true: DryForward
    copies: tuple[Copy, ...]
    """The first one is for most trials, the second one is larger where there is room."""


def shrink(task: Task, device: DeviceBackend, secret: bytes) -> Shrunk:
    """Two reduced copies of a task, of sizes that depend on a secret; one where no other size works.

    Raises:
        TaskError: its forward cannot be followed without data, or no copy is accepted.
    """
    true = dry_forward(task, device)
    copies = _Copies(task, device, true.ops)
    small, large = copies.base(sizes_of(task.reference))
    if small is None:
        raise TaskError(_unshrinkable(task, true))
    random = Random(seed_of(b"sizes", secret, task.fingerprint.encode()))
    first = copies.varied(small, random, [])
    second = copies.varied(large or small, random, [first.task.reference])
    pair = sorted((first, second), key=lambda copy: (copy.dry.traffic, copy.dry.flops))
    distinct = {copy.task.reference: copy for copy in (*pair, small)}
    return Shrunk(true, tuple(distinct.values())[:2])


class _Copies:
    """Makes copies of one task and accepts some."""

    def __init__(self, task: Task, device: DeviceBackend, ops: tuple[str, ...]) -> None:
        self._task, self._device, self._ops = task, device, ops

    def base(self, sizes: Sequence[int]) -> tuple[Copy | None, Copy | None]:
        """The copy that is wanted, or the smallest there is, and the next larger one, unless it takes too long."""
        found = self._smaller(sizes, WIDTHS)
        if not (found and found[-1].keeps_to(LARGER)):
            found = self._smaller(sizes, KEPT)
        if not found and (halves := halved(sizes, self._fits)) is not None:
            found = [copy for copy in [self.accepted(halves)] if copy is not None]
        larger = [copy for copy in found[:-1] if copy.keeps_to(LARGER)]
        return found[-1] if found else None, larger[-1] if larger else None

    def _smaller(self, sizes: Sequence[int], kept: int) -> list[Copy]:
        """Copies that are allowed, the smallest last, with numbers up to `kept` as they are."""
        found: list[Copy] = []
        most = max(sizes, default=0)
        for factor in range(1, min(_MOST_HALVINGS, most.bit_length()) if most > kept else 0):
            copy = self._divided(sizes, 2**factor, kept)
            if copy is None:
                continue
            if copy.keeps_to(ALLOWED):
                found.append(copy)
            if copy.keeps_to(WANTED):
                break
        return found

    def varied(self, copy: Copy, random: Random, taken: Sequence[str]) -> Copy:
        """A copy of sizes a little larger than those of this one, if any is accepted."""
        for sizes in varied(copy.sizes, random):
            other = self.accepted(sizes)
            if other is not None and other.keeps_to(ALLOWED) and other.task.reference not in taken:
                return other
        return copy

    def accepted(self, sizes: Sizes) -> Copy | None:
        """The copy with these sizes, or None if it is another task or fails."""
        copy = Task(resized(self._task.reference, sizes), self._task.task_id, self._task.entry_point)
        try:
            dry = dry_forward(copy, self._device)
        except TaskError:
            return None
        is_empty = any(tensor.numel() == 0 for tensor in dry.output.tensors)
        return None if is_empty or dry.ops != self._ops else Copy(copy, sizes, dry)

    def _divided(self, sizes: Sequence[int], factor: int, kept: int) -> Copy | None:
        """All sizes over a factor: different ones stay different where the task bears that."""
        tries: list[Callable[[], Sizes]] = [
            lambda: divided(sizes, factor, kept=kept),
            lambda: divided(sizes, factor, distinct=False, kept=kept),
        ]
        return next((copy for make in tries if (copy := self.accepted(make())) is not None), None)

    def _fits(self, sizes: Sizes) -> bool | None:
        copy = self.accepted(sizes)
        return None if copy is None else copy.keeps_to(ALLOWED)


def _unshrinkable(task: Task, true: DryForward) -> str:
    return (
        f"reference {task.task_id} cannot serve as a task: its forward moves {true.traffic / 1e9:.1f} GB and takes "
        f"{true.flops / 1e9:.0f} GFLOP, too much for this machine, and no copy with smaller sizes runs the same ops: "
        "write its sizes as numbers at module level, or make them smaller"
    )
