# SPDX-License-Identifier: Apache-2.0
"""Samples of what torch's ops return: a runner takes them in an ablation, and the judge looks in them for an answer."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

PLACES = 64
"""Elements that are sampled of one result."""
MOST = 256
"""Results that are kept of one forward; a message has a bound."""


@dataclass(frozen=True)
class OpSample:
    """Some elements of one result of an op."""

    size: int
    """Number of all its elements."""
    values: tuple[float, ...]
    """The elements at `places(seed, size)`, in the order of indices."""

    @classmethod
    def from_json(cls, value: object) -> OpSample:
        """Read a sample from untrusted JSON.

        Raises:
            ValueError: `value` is not what `to_json` returns.
        """
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError("a sample is a size and a list of values")
        size, values = value
        if type(size) is not int or not 0 < size < 2**63 or not isinstance(values, list):
            raise ValueError("a sample's size is a positive integer")
        if len(values) != min(PLACES, size) or not all(type(each) is float for each in values):
            raise ValueError("a sample has a number for each place")
        return cls(size, tuple(values))

    def to_json(self) -> list[object]:
        """Return size and values as JSON values."""
        return [self.size, list(self.values)]


def places(seed: int, size: int) -> list[int]:
    """Draw the numbers of the sampled elements, in ascending order, of a tensor in the order of its indices."""
    return sorted(Random(f"{seed} {size}").sample(range(size), min(PLACES, size)))


def read_samples(value: object) -> list[OpSample]:
    """Check and return a runner's list of samples.

    Raises:
        ValueError: the value is no list of at most `MOST` samples.
    """
    if not isinstance(value, list) or len(value) > MOST:
        raise ValueError("samples must be a list, and not too many")
    return [*map(OpSample.from_json, value)]
