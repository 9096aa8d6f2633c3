# SPDX-License-Identifier: Apache-2.0
"""Checks that a candidate does at the true size what was verified at reduced ones, by the executing process's counts.

First the counting itself is tested where the truth is known: at a verified size, sampled on tensors without data, the
candidate must do what its verified forward did. Then the true size is compared with the verified one: launches, types,
the share of each tensor, the growth of operations with the reference's, and the units that compute products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import log

from verl_kernel.env.emulator.work import NARROW, PRODUCTS, WIDE
from verl_kernel.env.ipc.execution_messages import BY_VALUE, Tally, Work, furthest
from verl_kernel.env.trace import TraceEvent

# A candidate's forward at one size in numbers, and which of its operations count.
#
# Void operations are left out. Their number is known for products: those on rows, columns and positions along k that
# hold zeros only. For other operations it is estimated from the share of masked lanes.


_BOUND_RATE = 16
"""Instructions per byte of a launch's tensors above which instructions determine its time: an H100 issues 9 in the time
of one byte."""
_MOST_PADDING = 1.5
"""How many times as large as an output tensor its tiles may be at a verified reduced size."""


@dataclass(frozen=True)
class Counted:
    """Counts of a candidate's forward at one size."""

    events: Sequence[TraceEvent]
    tallies: Sequence[Tally]
    """Tallies of its launches."""
    flops: int
    """Operations of the reference at this size."""
    read: float
    """Part of its inputs that the reference reads."""
    works: Sequence[Work] = ()
    """All that its launches did, if it ran without data."""
    functions: int = 0
    """Special functions of the reference at this size (`functions`)."""

    def ratio(self, true: Sequence[Tally]) -> float:
        """Return the candidate's operations, without void ones, over the reference's.

        Args:
            true: its launches at the true size.
        """
        pairs = zip(self.tallies, true, strict=True)
        # Masked lanes excuse nothing where arithmetic takes the time: a kernel could hide work in them at the verified
        # size that it leaves out at the true size.
        work = [
            sum(products(tally)) + _arithmetic(tally) * (1.0 if _is_bound(true_tally) else _unmasked_share(tally))
            for tally, true_tally in pairs
        ]
        return (self._ops + sum(work)) / max(1, self.flops)

    def passes(self, true: Sequence[Tally]) -> float:
        """Return its products per operation of the reference: several if a narrower unit multiplies float32.

        Rows and columns that are not stored do not count. The result is 0 unless float32 products dominate.

        Args:
            true: its launches at the true size, where more of the rows and columns may be stored.
        """
        is_float32 = any(kind == "*fp32" for tally in true for kind in tally["types"].values())
        # Only float32 is multiplied in several passes of narrower units (3xTF32, 6xBF16).
        if not is_float32 or 2 * sum(sum(products(tally)) for tally in true) <= sum(map(flops, true)):
            return 0.0
        pairs = zip(self.tallies, true, strict=True)
        stored = [sum(products(tally)) * _stored_share(tally, true_tally) for tally, true_tally in pairs]
        return (self._ops + sum(stored)) / max(1, self.flops)

    @property
    def _ops(self) -> int:
        return sum(event.flops for event in self.events if event.kind == "op")


def products(tally: Tally) -> list[int]:
    """Return the operations of products by unit, without void ones (on zeros only)."""
    return [tally["operations"][unit] - tally["voids"].get(unit, 0) for unit in PRODUCTS]


def flops(tally: Tally) -> int:
    """Return all operations, without void ones where they are known."""
    return sum(products(tally)) + _arithmetic(tally)


def _arithmetic(tally: Tally) -> int:
    return sum(tally["operations"][unit] for unit in (NARROW, WIDE))


def _unmasked_share(tally: Tally) -> float:
    """Return the share of lanes that are not masked."""
    return tally["useful"] / max(1, tally["offered"])


def _needed_share(tally: Tally) -> float:
    """Return the share of lanes that are not masked, where a block may be far longer than its row at this size."""
    return tally["useful"] / max(1, tally["lanes"])


def _is_bound(tally: Tally) -> bool:
    """Whether operations, and not bytes, determine a launch's time."""
    moved = sum(area[1] + area[3] for area in tally["areas"].values())
    return max(tally["operations"][unit] for unit in ("issue", "integer", "special")) > _BOUND_RATE * moved


def _stored_share(tally: Tally, true: Tally) -> float:
    """Return the share of the products' rows and columns that is stored, relative to the true size."""
    share, true_share = (counts["stores"][0] / max(1, counts["stores"][1]) for counts in (tally, true))
    # The bound limits how much a kernel can gain by multiplying rows at the verified size that it never stores.
    return max(1 / _MOST_PADDING, min(1.0, share / true_share)) if true_share else 1.0


_REPETITION_TOLERANCE = 0.1
"""Largest relative difference of a count without data from the verified one."""
_COVERED = 0.95
"""Least part of a tensor's verified share that a launch must load or store at the true size."""
_GROWN = 0.85
"""Least part of the operations that the reference's growth asks for."""
_EXTRAPOLATED = 0.5
"""Least part of a number extrapolated from two verified sizes: two points say little about a third."""
_EXECUTED = 0.5
"""Least part of the expected instructions per requested byte, and of special functions."""
_ARITHMETIC_SHARE = 0.02
"""Share of arithmetic among the instructions above which operations are compared instead of instructions."""
_SHIFT_TOLERANCE = 0.05
"""How much larger the share of products on a cheaper unit may become."""


@dataclass(frozen=True)
class SizeMismatch:
    """A difference, described by a sentence."""

    sentence: str
    is_candidates: bool = True
    """Whether it proves that the candidate does something else; if false, that cannot be known."""


def not_repeated(verified: Counted, followed: Counted) -> str | None:
    """Return how counting without data differs from a verified forward at the same size; None if it does not."""
    if (text := _sequence_mismatch(verified.events, followed.events, "without data")) is not None:
        return text
    for number, expected, actual in _pairs(verified, followed):
        if expected["grid"] != actual["grid"]:
            # The counts below are those of whole grids: they compare launches of one grid only.
            # check: dry-grid-is-the-verified
            return (
                f"launch {number} ({expected['kernel']}) has another grid on tensors without data than where verified"
            )
        entry, difference = furthest(expected, actual)
        if difference > _REPETITION_TOLERANCE * BY_VALUE.get(entry, 1.0):
            # check: dry-work-is-the-verified
            return (
                f"launch {number} ({expected['kernel']}) does something else on tensors without data than where its "
                f"output was verified, at the same size: {entry} differ by {difference:.0%}"
            )
    return None


def difference(verified: Sequence[Counted], again: Counted, true: Counted) -> SizeMismatch | None:
    """Return what differs at the true size, or None.

    Args:
        verified: forwards at reduced sizes, the smallest first.
        again: forward at the last of these sizes without data.
        true: forward at the true size, without data too.
    """
    last = verified[-1]
    if (text := _sequence_mismatch(last.events, true.events, "at the true size")) is not None:
        return SizeMismatch(text)  # check: true-work-is-the-verified
    share_left = _share_left(last, true)
    for number, expected, actual in _pairs(last, true):
        lost_share = _share_mismatch(number, expected, actual, last.read, true.read)
        mismatch = _type_mismatch(number, expected, actual) or lost_share
        if (mismatch := mismatch or _unit_mismatch(number, expected, actual, share_left)) is not None:
            return mismatch
    for number, *sizes, true_tally in zip(count(1), *(each.tallies for each in (*verified, true)), strict=False):
        mismatch = _precision_mismatch(number, sizes, true_tally, share_left)
        if (mismatch := mismatch or _instruction_mismatch(number, sizes, true_tally)) is not None:
            return mismatch
    op_mismatch = _op_precision_mismatch(last.events, true.events)
    op_mismatch = op_mismatch or _op_share_mismatch(verified[0].events, again.events, true.events)
    return op_mismatch or _function_mismatch((*verified[:-1], again), true) or _operation_mismatch(verified, true)


def _share_left(verified: Counted, true: Counted) -> float:
    """Return the share of operations left at the true size; 1 where at least half are."""
    true_ratio, verified_ratio = (each.ratio(true.tallies) for each in (true, verified))
    return true_ratio / verified_ratio if 0 < true_ratio < _EXTRAPOLATED * verified_ratio else 1.0


def _pairs(verified: Counted, followed: Counted) -> Iterator[tuple[int, Tally, Tally]]:
    pairs = enumerate(zip(verified.tallies, followed.tallies, strict=True), 1)
    return ((number, expected, actual) for number, (expected, actual) in pairs)


def _sequence_mismatch(verified: Sequence[TraceEvent], followed: Sequence[TraceEvent], circumstance: str) -> str | None:
    names, expected = [event.name for event in followed], [event.name for event in verified]
    if names == expected:
        return None
    index = next(
        (i for i, (a, b) in enumerate(zip(names, expected, strict=False)) if a != b), min(len(names), len(expected))
    )
    name, expected_name = (sequence[index] if index < len(sequence) else "nothing" for sequence in (names, expected))
    # check: true-launches-are-the-verified
    return f"kernel or op {index + 1} is {name} {circumstance} and {expected_name} where the output was verified"


def _type_mismatch(number: int, verified: Tally, true: Tally) -> SizeMismatch | None:
    """Find a tensor whose type differs; numbers may become wider, or 1, which is a constant."""
    for name, kind in verified["types"].items():
        true_kind = true["types"].get(name, "")
        # Only types of pointers ("*fp32"): a size of 2**31 becomes an i64, and one of 1 a constant without a type.
        if "*" in kind + true_kind and true_kind != kind:
            # check: true-types-are-the-verified
            return SizeMismatch(
                f"launch {number} has {name} as {true_kind} at the true size and as {kind} where it was verified"
            )
    return None


def _share_mismatch(number: int, verified: Tally, true: Tally, read: float, true_read: float) -> SizeMismatch | None:
    # Columns of `Tally.areas`: distinct bytes read and written. The reference may read a smaller share too, of an
    # embedding's table for example, but it never writes less.
    required = {1: min(1.0, true_read / read) if read else 1.0, 3: 1.0}
    for name, area in verified["areas"].items():
        true_area = true["areas"].get(name, [1, 0, 0, 0, 0])
        for column, access in ((1, "load"), (3, "store")):
            shares = [min(1.0, counts[column] / max(1, counts[0])) for counts in (area, true_area)]
            if shares[1] < _COVERED * required[column] * shares[0]:
                # check: true-shares-are-the-verified
                return _share_sentence(number, name, access, shares, true["guessed"])
    return None


def _share_sentence(number: int, name: str, access: str, shares: list[float], guessed: Sequence[str]) -> SizeMismatch:
    verified_share, true_share = shares
    sentence = (
        f"launch {number} {access}s {true_share:.0%} of {name} at the true size and {verified_share:.0%} "
        "at a reduced one"
    )
    if guessed:
        # Indices without data are guesses: a gather may then miss parts of a tensor through no fault of the program.
        return SizeMismatch(
            f"{sentence}, as far as can be seen: whole numbers of {guessed[0]} are not known there", False
        )
    return SizeMismatch(sentence)


def _unit_mismatch(number: int, verified: Tally, true: Tally, share_left: float) -> SizeMismatch | None:
    """Find a shift to cheaper units; operations left out at the true size count as done by the cheapest one."""
    for unit, verified_share, true_share in zip(
        PRODUCTS, _cheaper_shares(verified), _cheaper_shares(true), strict=True
    ):
        # If cheap products are left out, the share of the expensive ones must rise accordingly.
        if true_share > 1 - min(1.0, (1 - verified_share) / share_left) + _SHIFT_TOLERANCE:
            # check: true-units-are-the-verified
            return SizeMismatch(
                f"launch {number} does {true_share:.0%} of its products by the unit {unit!r} or a cheaper one at the "
                f"true size, and {verified_share:.0%} where it was verified"
            )
    return None


def _precision_mismatch(number: int, verified: Sequence[Tally], true: Tally, share_left: float) -> SizeMismatch | None:
    """Find a shift to 16-bit arithmetic; its share may grow if the rest is fixed work of a block or a row."""
    first, last = verified[0], verified[-1]
    verified_share, true_share = _narrow_share(last), _narrow_share(true)
    trend = max(_EXTRAPOLATED, _tally_trend(verified, true, 1 - _narrow_share(first), 1 - verified_share))
    expected = 1 - min(1.0, (1 - verified_share) / share_left) * trend
    if true_share <= expected + _SHIFT_TOLERANCE:
        return None
    # check: true-precision-is-the-verified
    return SizeMismatch(
        f"launch {number} computes {true_share:.0%} in 16 bits at the true size, and {verified_share:.0%} where "
        "verified"
    )


def _tally_trend(verified: Sequence[Tally], true: Tally, small: float, large: float) -> float:
    """Extrapolate a number that fell between two verified sizes, relative to the larger size; 1 if it did not fall."""
    return _trend(small, large, [each["offered"] for each in (verified[0], verified[-1], true)])


def _trend(small: float, large: float, sizes: Sequence[int]) -> float:
    """Extrapolate a number that fell from `small` to `large` at the first two of three sizes to the third."""
    first, last, true = sizes
    if not (0 < first < last < true and large < small):
        return 1.0
    # A power law through both verified sizes: the slope in a plot of logarithms.
    return float((large / small) ** (log(true / last) / log(last / first)))


def _instruction_mismatch(number: int, verified: Sequence[Tally], true: Tally) -> SizeMismatch | None:
    """Find missing instructions where next to nothing but integers is computed, such as the comparisons of a sort.

    They grow with bytes, except a block's fixed ones.
    """
    first, last = verified[0], verified[-1]
    verified_rate, true_rate = _instructions_per_byte(last), _instructions_per_byte(true)
    expected = verified_rate * _tally_trend(verified, true, _instructions_per_byte(first), verified_rate)
    if (
        any(flops(tally) > _ARITHMETIC_SHARE * tally["operations"]["issue"] for tally in verified)
        or true_rate >= _EXECUTED * expected
    ):
        return None
    # check: true-instructions-are-the-verified
    return SizeMismatch(
        f"launch {number} executes {true_rate:.3g} instructions for each byte that it asks for at the true size, and "
        f"{verified_rate:.3g} where it was verified"
    )


def _instructions_per_byte(tally: Tally) -> float:
    """Return the instructions per requested byte, including those of masked lanes."""
    return tally["operations"]["issue"] / max(1, tally["offered"])


# Not `pow`: squares are products, and a norm squares each element and takes one root of each row.
_FUNCTIONS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p logaddexp sigmoid tanh erf erfc erfinv sin cos tan asin acos atan atan2 "
    "sinh cosh asinh acosh atanh sqrt rsqrt reciprocal gelu silu mish elu selu celu softplus logit "
    "log_sigmoid log_sigmoid_forward _softmax _log_softmax softmax log_softmax logsumexp gelu_backward".split()
)


def functions(events: Sequence[TraceEvent]) -> int:
    """Return the bytes that a reference's special functions move: a measure of how many it computes."""
    return sum(event.bytes for event in events if event.name.rpartition("::")[2].partition(".")[0] in _FUNCTIONS)


def _function_mismatch(verified: Sequence[Counted], true: Counted) -> SizeMismatch | None:
    """Find exponentials, roots and the like that became fewer for each one of the reference.

    Those of a block or a row, such as the rescaling of an online softmax, weigh less the longer the rows are.

    Args:
        verified: forwards at reduced sizes, the last one without data like `true`: libdevice's branches hang on values.
        true: forward at the true size.
    """
    if not all(counts.functions for counts in (*verified, true)):
        return None
    # A short row leaves lanes of its block idle at the reduced sizes; at the true size none are excused.
    small, large = (_functions_per_reference(counts, needed_only=True) for counts in (verified[0], verified[-1]))
    true_rate = _functions_per_reference(true, needed_only=False)
    trend = _trend(small, large, [counts.functions for counts in (verified[0], verified[-1], true)])
    if true_rate >= _EXECUTED * max(_EXTRAPOLATED, trend) * large:
        return None
    # check: true-functions-are-the-verified
    return SizeMismatch(
        f"its launches compute {true_rate / large:.0%} as many special functions for each of the reference's at the "
        "true size as where its output was verified"
    )


def _functions_per_reference(counts: Counted, needed_only: bool) -> float:
    """Return a candidate's special functions over the reference's; `needed_only`: without those of masked lanes."""
    shares = [_needed_share(tally) if needed_only else 1.0 for tally in counts.tallies]
    special = [tally["operations"]["special"] for tally in counts.tallies]
    return sum(number * share for number, share in zip(special, shares, strict=True)) / counts.functions


def _cheaper_shares(tally: Tally) -> list[float]:
    """Return for each unit the share of products that this unit or a cheaper one computes."""
    work = products(tally)
    return [sum(work[: index + 1]) / max(1, sum(work)) for index in range(len(work))]


def _narrow_share(tally: Tally) -> float:
    narrow, wide = (tally["operations"][unit] for unit in (NARROW, WIDE))
    return narrow / max(1, narrow + wide)


def _op_precision_mismatch(verified: Sequence[TraceEvent], true: Sequence[TraceEvent]) -> SizeMismatch | None:
    for number, (event, true_event) in enumerate(zip(verified, true, strict=True), 1):
        shares = [each.half_flops / max(1, each.flops) for each in (event, true_event)]
        if true_event.kind == "op" and shares[1] > shares[0] + _SHIFT_TOLERANCE:
            # check: true-op-precision-is-the-verified
            return SizeMismatch(f"op {number} ({true_event.name}) computes in 16 bits at the true size only")
    return None


def _op_share_mismatch(
    first: Sequence[TraceEvent], again: Sequence[TraceEvent], true: Sequence[TraceEvent]
) -> SizeMismatch | None:
    """Find an op that is given, or moves, less of the memory that its tensors lie in, such as a slice of an input.

    Args:
        first: events at the smallest verified size.
        again: events at the largest one.
        true: events at the true size.
    """
    if len(first) != len(again):
        first = again  # no trend can be read from another sequence of ops
    for number, (small, large, true_event) in enumerate(zip(first, again, true, strict=True), 1):
        verified_share, true_share = _share_taken(large), _share_taken(true_event)
        smallest_share = _COVERED * min(1.0, verified_share) * _allowed_fall(small, large, true_event)
        if true_event.kind == "op" and true_share < smallest_share:
            sentence = f"op {number} ({true_event.name}) takes {true_share:.0%} of its tensors' memory at the true size"
            # A part may be one row, of however many: then the share falls as it should.
            is_candidates = verified_share >= _COVERED
            # check: true-op-takes-all
            return SizeMismatch(f"{sentence}, and {verified_share:.0%} at a reduced one", is_candidates)
    return None


def _share_taken(event: TraceEvent) -> float:
    """Return the share of its tensors' memory that an op takes."""
    return min(event.given, event.bytes) / event.held if event.held else 1.0


def _allowed_fall(small: TraceEvent, large: TraceEvent, true: TraceEvent) -> float:
    """Return how much smaller a share may be at the true size: as one row of a tensor that grows, at two sizes already.

    The parts must be so small that a program gains no more by leaving one out than may be missing of its operations.
    """
    small_share, large_share = _share_taken(small), _share_taken(large)
    if not (0 < large_share < small_share and large_share <= 1 - _GROWN and 0 < small.held < large.held < true.held):
        return 1.0
    return float((true.held / large.held) ** (log(large_share / small_share) / log(large.held / small.held)))


def _operation_mismatch(verified: Sequence[Counted], true: Counted) -> SizeMismatch | None:
    verified_ratio, true_ratio = (counts.ratio(true.tallies) for counts in (verified[-1], true))
    if not any(map(flops, verified[-1].tallies)) or true_ratio >= _least_ratio(verified, true):
        return None
    # check: true-operations-grow
    return SizeMismatch(
        f"the operations grow less than the reference's: {true_ratio:.3g} times as many at the true size, "
        f"{verified_ratio:.3g} times where the output was verified"
    )


def _least_ratio(verified: Sequence[Counted], true: Counted) -> float:
    """Return the least ratio of operations at the true size.

    No more than 1 is required, except of products that take several passes. A ratio that fell between two verified
    sizes may fall further: below 1 the candidate has a cheaper algorithm.
    """
    first, last = verified[0], verified[-1]
    small, large = (counts.ratio(true.tallies) for counts in (first, last))
    # A candidate may do more than the reference where small tiles waste work, and need not go on doing so.
    required = max(min(1.0, large), last.passes(true.tallies))
    if not (0 < large < small and 0 < first.flops < last.flops < true.flops):
        return required * _GROWN
    steps = log(true.flops / last.flops) / log(last.flops / first.flops)
    # A power law in the reference's operations, as a cheaper algorithm follows: n log n instead of n**2.
    extrapolated = float(required * (large / small) ** steps * _EXTRAPOLATED)
    return extrapolated if large < 1 else max(extrapolated, required * _GROWN)
