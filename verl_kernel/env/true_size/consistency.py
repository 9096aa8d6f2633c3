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

from verl_kernel.env.executor.work import NARROW, PRODUCTS, WIDE
from verl_kernel.env.ipc.execution_messages import BY_VALUE, Tally, Work, furthest
from verl_kernel.env.trace import TraceEvent

# A candidate's forward at one size in numbers, and which of its operations count.
#
# Void operations are left out. Their number is known for products: those on rows, columns and places along k that hold
# zeros only. It is estimated for others from the share of masked lanes, but not where operations determine the time of
# a launch: there a kernel could use idle lanes at the verified size to hide work that it leaves out at the true size.


_BOUND = 16
"""Instructions per byte of a launch's tensors above which instructions determine its time: an H100 issues 9 in the time
of one byte."""
_PADDED = 1.5
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
        done = [sum(products(one)) + _others(one) * (1.0 if _is_bound(now) else _busy(one)) for one, now in pairs]
        return (self._ops + sum(done)) / max(1, self.flops)

    def passes(self, true: Sequence[Tally]) -> float:
        """Return its products per operation of the reference: several if a narrower unit multiplies float32.

        Rows and columns that are not stored do not count. The result is 0 unless float32 products dominate.

        Args:
            true: its launches at the true size, where more of the rows and columns may be stored.
        """
        is_float32 = any(kind == "*fp32" for one in true for kind in one["types"].values())
        if not is_float32 or 2 * sum(sum(products(one)) for one in true) <= sum(map(flops, true)):
            return 0.0
        pairs = zip(self.tallies, true, strict=True)
        return (self._ops + sum(sum(products(one)) * _stored(one, now) for one, now in pairs)) / max(1, self.flops)

    @property
    def _ops(self) -> int:
        return sum(event.flops for event in self.events if event.kind == "op")


def products(one: Tally) -> list[int]:
    """Return the operations of products by unit, without void ones (on zeros only)."""
    return [one["operations"][unit] - one["voids"].get(unit, 0) for unit in PRODUCTS]


def flops(one: Tally) -> int:
    """Return all operations, without void ones where they are known."""
    return sum(products(one)) + _others(one)


def _others(one: Tally) -> int:
    return sum(one["operations"][unit] for unit in (NARROW, WIDE))


def _busy(one: Tally) -> float:
    """Return the share of lanes that are not masked."""
    return one["useful"] / max(1, one["offered"])


def _awake(one: Tally) -> float:
    """Return the share of lanes that are not masked, where a block may be far longer than its row at this size."""
    return one["useful"] / max(1, one["lanes"])


def _is_bound(one: Tally) -> bool:
    """Whether operations, and not bytes, determine a launch's time."""
    moved = sum(area[1] + area[3] for area in one["areas"].values())
    return max(one["operations"][unit] for unit in ("issue", "integer", "special")) > _BOUND * moved


def _stored(one: Tally, true: Tally) -> float:
    """Return the share of the products' rows and columns that is stored, relative to the true size."""
    here, there = (each["stores"][0] / max(1, each["stores"][1]) for each in (one, true))
    return max(1 / _PADDED, min(1.0, here / there)) if there else 1.0


_REPEATED = 0.1
"""Largest relative difference of a count without data from the verified one."""
_COVERED, _GROWN, _EXTRAPOLATED, _EXECUTED = 0.95, 0.85, 0.5, 0.5
"""Least parts: of a tensor's share, of operations, of operations extrapolated from two sizes, of instructions per
requested byte."""
_ARITHMETIC = 0.02
"""Part of the instructions: with more operations these are compared instead."""
_SHIFTED = 0.05
"""How much larger the share of products on a cheaper unit may become."""


@dataclass(frozen=True)
class Unlike:
    """A difference, described by a sentence."""

    sentence: str
    is_candidates: bool = True
    """Whether it proves that the candidate does something else; if false, that cannot be known."""


def not_repeated(verified: Counted, followed: Counted) -> str | None:
    """Return how counting without data differs from a verified forward at the same size; None if it does not."""
    if (text := _sequence(verified.events, followed.events, "without data")) is not None:
        return text
    for number, one, other in _pairs(verified, followed):
        if one["grid"] != other["grid"]:
            # check: dry-grid-is-the-verified
            return f"launch {number} ({one['kernel']}) has another grid on tensors without data than where verified"
        what, part = furthest(one, other)
        if part > _REPEATED * BY_VALUE.get(what, 1.0):
            # check: dry-work-is-the-verified
            return (
                f"launch {number} ({one['kernel']}) does something else on tensors without data than where its output "
                f"was verified, at the same size: {what} differ by {part:.0%}"
            )
    return None


def difference(verified: Sequence[Counted], again: Counted, true: Counted) -> Unlike | None:
    """Return what differs at the true size, or None.

    Args:
        verified: forwards at reduced sizes, the smallest first.
        again: forward at the last of these sizes without data.
        true: forward at the true size, without data too.
    """
    last = verified[-1]
    if (text := _sequence(last.events, true.events, "at the true size")) is not None:
        return Unlike(text)  # check: true-work-is-the-verified
    left = _left(last, true)
    for number, one, other in _pairs(last, true):
        covered = _shares(number, one, other, last.read, true.read)
        unlike = _types(number, one, other) or covered or _units(number, one, other, left)
        if unlike is not None:
            return unlike
    for number, *sizes, now in zip(count(1), *(each.tallies for each in (*verified, true)), strict=False):
        if (unlike := _narrowed(number, sizes, now, left) or _executed(number, sizes, now)) is not None:
            return unlike
    ops = _ops(last.events, true.events) or _parts(verified[0].events, again.events, true.events)
    return ops or _functions((*verified[:-1], again), true) or _operations(verified, true)


def _left(verified: Counted, true: Counted) -> float:
    """Return the share of operations left at the true size; 1 where at least half are."""
    now, was = (each.ratio(true.tallies) for each in (true, verified))
    return now / was if 0 < now < _EXTRAPOLATED * was else 1.0


def _pairs(one: Counted, other: Counted) -> Iterator[tuple[int, Tally, Tally]]:
    pairs = enumerate(zip(one.tallies, other.tallies, strict=True), 1)
    return ((number, left, right) for number, (left, right) in pairs)


def _sequence(verified: Sequence[TraceEvent], other: Sequence[TraceEvent], where: str) -> str | None:
    ours, theirs = [event.name for event in other], [event.name for event in verified]
    if ours == theirs:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    there, then = (names[at] if at < len(names) else "nothing" for names in (ours, theirs))
    # check: true-launches-are-the-verified
    return f"kernel or op {at + 1} is {there} {where} and {then} where the output was verified"


def _types(number: int, verified: Tally, true: Tally) -> Unlike | None:
    """Find a tensor whose type differs; numbers may become wider, or 1, which is a constant."""
    for name, kind in verified["types"].items():
        now = true["types"].get(name, "")
        if "*" in kind + now and now != kind:
            # check: true-types-are-the-verified
            return Unlike(f"launch {number} has {name} as {now} at the true size and as {kind} where it was verified")
    return None


def _shares(number: int, verified: Tally, true: Tally, read: float, now_read: float) -> Unlike | None:
    asked = {1: min(1.0, now_read / read) if read else 1.0, 3: 1.0}
    for name, before in verified["areas"].items():
        now = true["areas"].get(name, [1, 0, 0, 0, 0])
        for place, what in ((1, "load"), (3, "store")):
            shares = [min(1.0, area[place] / max(1, area[0])) for area in (before, now)]
            if shares[1] < _COVERED * asked[place] * shares[0]:
                return _uncovered(number, name, what, shares, true["guessed"])  # check: true-shares-are-the-verified
    return None


def _uncovered(number: int, name: str, what: str, shares: list[float], guessed: Sequence[str]) -> Unlike:
    before, now = shares
    sentence = f"launch {number} {what}s {now:.0%} of {name} at the true size and {before:.0%} at a reduced one"
    if guessed:
        return Unlike(f"{sentence}, as far as can be seen: whole numbers of {guessed[0]} are not known there", False)
    return Unlike(sentence)


def _units(number: int, verified: Tally, true: Tally, left: float) -> Unlike | None:
    """Find a shift to cheaper units; operations left out at the true size count as done by the cheapest one."""
    for unit, was, now in zip(PRODUCTS, _cheaper(verified), _cheaper(true), strict=True):
        if now > 1 - min(1.0, (1 - was) / left) + _SHIFTED:
            # check: true-units-are-the-verified
            return Unlike(
                f"launch {number} does {now:.0%} of its products by the unit {unit!r} or a cheaper one at the true "
                f"size, and {was:.0%} where it was verified"
            )
    return None


def _narrowed(number: int, verified: Sequence[Tally], true: Tally, left: float) -> Unlike | None:
    """Find a shift to 16-bit arithmetic; its share may grow if the rest is fixed work of a block or a row."""
    first, last = verified[0], verified[-1]
    was, now = _narrow(last), _narrow(true)
    trend = max(_EXTRAPOLATED, _trend(verified, true, 1 - _narrow(first), 1 - was))
    expected = 1 - min(1.0, (1 - was) / left) * trend
    if now <= expected + _SHIFTED:
        return None
    # check: true-precision-is-the-verified
    return Unlike(f"launch {number} computes {now:.0%} in 16 bits at the true size, and {was:.0%} where verified")


def _trend(verified: Sequence[Tally], true: Tally, small: float, large: float) -> float:
    """Extrapolate a number that fell between two verified sizes, relative to the larger size; 1 if it did not fall."""
    return _trend_of(small, large, [each["offered"] for each in (verified[0], verified[-1], true)])


def _trend_of(small: float, large: float, sizes: Sequence[int]) -> float:
    """Extrapolate a number that fell from `small` to `large` at the first two of three sizes to the third."""
    first, last, true = sizes
    if not (0 < first < last < true and large < small):
        return 1.0
    return float((large / small) ** (log(true / last) / log(last / first)))


def _executed(number: int, verified: Sequence[Tally], true: Tally) -> Unlike | None:
    """Find missing instructions where next to nothing but integers is computed, such as the comparisons of a sort.

    They grow with bytes, except a block's fixed ones.
    """
    first, last = verified[0], verified[-1]
    was, now = _often(last), _often(true)
    expected = was * _trend(verified, true, _often(first), was)
    if any(flops(one) > _ARITHMETIC * one["operations"]["issue"] for one in verified) or now >= _EXECUTED * expected:
        return None
    # check: true-instructions-are-the-verified
    return Unlike(
        f"launch {number} executes {now:.3g} instructions for each byte that it asks for at the true size, and "
        f"{was:.3g} where it was verified"
    )


def _often(one: Tally) -> float:
    """Return the instructions per requested byte, including those of masked lanes."""
    return one["operations"]["issue"] / max(1, one["offered"])


# Not `pow`: squares are products, and a norm squares each element and takes one root of each row.
_FUNCTIONS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p logaddexp sigmoid tanh erf erfc erfinv sin cos tan asin acos atan atan2 "
    "sinh cosh asinh acosh atanh sqrt rsqrt reciprocal gelu silu mish elu selu celu softplus logit "
    "log_sigmoid log_sigmoid_forward _softmax _log_softmax softmax log_softmax logsumexp gelu_backward".split()
)


def functions(events: Sequence[TraceEvent]) -> int:
    """Return the bytes that a reference's special functions move: a measure of how many it computes."""
    return sum(event.bytes for event in events if event.name.rpartition("::")[2].partition(".")[0] in _FUNCTIONS)


def _functions(verified: Sequence[Counted], true: Counted) -> Unlike | None:
    """Find exponentials, roots and the like that became fewer for each one of the reference.

    Those of a block or a row, such as the rescaling of an online softmax, weigh less the longer the rows are.

    Args:
        verified: forwards at reduced sizes, the last one without data like `true`: libdevice's branches hang on values.
        true: forward at the true size.
    """
    if not all(each.functions for each in (*verified, true)):
        return None
    small, was = (_computed(each, awake=True) for each in (verified[0], verified[-1]))
    now = _computed(true, awake=False)
    trend = _trend_of(small, was, [each.functions for each in (verified[0], verified[-1], true)])
    if now >= _EXECUTED * max(_EXTRAPOLATED, trend) * was:
        return None
    # check: true-functions-are-the-verified
    return Unlike(
        f"its launches compute {now / was:.0%} as many special functions for each of the reference's at the "
        "true size as where its output was verified"
    )


def _computed(one: Counted, awake: bool) -> float:
    """Return a candidate's special functions over the reference's; `awake`: without those of masked lanes."""
    return sum(each["operations"]["special"] * (_awake(each) if awake else 1.0) for each in one.tallies) / one.functions


def _cheaper(one: Tally) -> list[float]:
    """Return for each unit the share of products that this unit or a cheaper one computes."""
    done = products(one)
    return [sum(done[: place + 1]) / max(1, sum(done)) for place in range(len(done))]


def _narrow(one: Tally) -> float:
    narrow, wide = (one["operations"][unit] for unit in (NARROW, WIDE))
    return narrow / max(1, narrow + wide)


def _ops(verified: Sequence[TraceEvent], true: Sequence[TraceEvent]) -> Unlike | None:
    for number, (before, now) in enumerate(zip(verified, true, strict=True), 1):
        shares = [event.half_flops / max(1, event.flops) for event in (before, now)]
        if now.kind == "op" and shares[1] > shares[0] + _SHIFTED:
            # check: true-op-precision-is-the-verified
            return Unlike(f"op {number} ({now.name}) computes in 16 bits at the true size only")
    return None


def _parts(first: Sequence[TraceEvent], again: Sequence[TraceEvent], true: Sequence[TraceEvent]) -> Unlike | None:
    """Find an op that is given, or moves, less of the memory that its tensors lie in, such as a slice of an input.

    Args:
        first: events at the smallest verified size.
        again: events at the largest one.
        true: events at the true size.
    """
    if len(first) != len(again):
        first = again
    for number, (small, before, now) in enumerate(zip(first, again, true, strict=True), 1):
        was, share = _part(before), _part(now)
        if now.kind == "op" and share < _COVERED * min(1.0, was) * _fall(small, before, now):
            sentence = f"op {number} ({now.name}) takes {share:.0%} of its tensors' memory at the true size"
            # A part may be one row, of however many: then the share falls as it should.
            # check: true-op-takes-all
            return Unlike(f"{sentence}, and {was:.0%} at a reduced one", is_candidates=was >= _COVERED)
    return None


def _part(event: TraceEvent) -> float:
    """Return the share of its tensors' memory that an op takes."""
    return min(event.given, event.bytes) / event.held if event.held else 1.0


def _fall(small: TraceEvent, large: TraceEvent, true: TraceEvent) -> float:
    """Return how much smaller a share may be at the true size: as one row of a tensor that grows, at two sizes already.

    The parts must be so small that a program gains no more by leaving one out than may be missing of its operations.
    """
    was, share = _part(small), _part(large)
    if not (0 < share < was and share <= 1 - _GROWN and 0 < small.held < large.held < true.held):
        return 1.0
    return float((true.held / large.held) ** (log(share / was) / log(large.held / small.held)))


def _operations(verified: Sequence[Counted], true: Counted) -> Unlike | None:
    there, now = (each.ratio(true.tallies) for each in (verified[-1], true))
    if not any(map(flops, verified[-1].tallies)) or now >= _least(verified, true):
        return None
    # check: true-operations-grow
    return Unlike(
        f"the operations grow less than the reference's: {now:.3g} times as many at the true size, "
        f"{there:.3g} times where the output was verified"
    )


def _least(verified: Sequence[Counted], true: Counted) -> float:
    """Return the least ratio of operations at the true size.

    No more than 1 is required, except of products that take several passes. A ratio that fell between two verified
    sizes may fall further: below 1 the candidate has a cheaper algorithm.
    """
    first, last = verified[0], verified[-1]
    small, large = (each.ratio(true.tallies) for each in (first, last))
    asked = max(min(1.0, large), last.passes(true.tallies))
    if not (0 < large < small and 0 < first.flops < last.flops < true.flops):
        return asked * _GROWN
    steps = log(true.flops / last.flops) / log(last.flops / first.flops)
    going_on = float(asked * (large / small) ** steps * _EXTRAPOLATED)
    return going_on if large < 1 else max(going_on, asked * _GROWN)
