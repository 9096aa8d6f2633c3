# SPDX-License-Identifier: Apache-2.0
"""How sizes are reduced: all by one power of two, or the largest ones halved one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

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
