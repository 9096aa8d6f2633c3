# SPDX-License-Identifier: Apache-2.0
"""Varies a task's inputs beyond what `get_inputs()` draws, as far as the reference's outputs stay usable.

Floating inputs get other scales, below and above one, other signs, by element and by slice, a row of zeros and a small
row. Masks that are all true or nearly so get the rare value in some places; other masks get slices with all, none or
one set. Integers get the ends of their range and repeated values, or another order where they never repeat; sorted ones
other gaps. Inputs that never change are redrawn. Where outputs are of 16 bits, a few elements of large inputs are many
times as large as the others: a sum or a mean of a part of the elements is within such an output's tolerance, but misses
some of these. Further trials move whole tensors to one end of their range (`ends`). What held in every draw holds in
each trial (`relations`, `structure`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log2

import torch

from verl_kernel.env.eight_bits import narrowed_all, widened_all
from verl_kernel.env.reference.extreme_inputs import (
    Distances,
    Signs,
    at_end,
    by_slices,
    learn_distances,
    single,
    some_axis,
)
from verl_kernel.env.reference.kinds import ENDS, Kind
from verl_kernel.env.reference.relations import Relations, find_relations
from verl_kernel.env.reference.roles import Role, find_roles, unchanged
from verl_kernel.env.weights import constant_value, renewed

LOW = 0.125
"""Smallest scale of a varied trial."""
HIGHS = (8.0, 4.0, 2.0, 1.0)
"""Largest scales of a varied trial to try: the first that keeps the reference's outputs usable is taken."""
LARGES = (4096.0, 1024.0, 256.0, 64.0, 16.0)
"""Scales of the trial of large inputs to try, in the same way."""
_FIRST_OF_SEVERAL = 2
"""Index of the first scale to try with several tensors: products at larger ones would pass -1e6, which correct kernels
write where a mask hides a score."""
_TINY = 1e-30
"""Nearly zero: its square is zero in float32."""
_SMALL = 2.0**-10
"""Scale of one row of a varied trial: the term that keeps a norm from dividing by zero decides such a row."""
_DRAWS_OF_INTEGERS = 16
"""Number of draws from which the roles of integers and masks are learned."""
_RARE_PART = 4
"""One element in this number gets a rare value."""
_FEWEST_SPIKES = 8
"""Fewest large elements of an input."""
_SPREAD = 0.5
"""How much large elements differ from one another, as a part of their size."""
_HEADROOM = 8
"""Factor by which large elements stay below the largest number of their type."""
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Variation:
    """Changes that varied trials make to inputs."""

    roles: tuple[Role, ...]
    """Role of each input where the reference tolerates that this input alone is varied, else `drawn`."""
    learned_roles: tuple[Role, ...] = ()
    """Role of each input."""
    signs: bool = False
    low: float = 1.0
    high: float = 1.0
    large: float = 1.0
    """Scale of the trial of large inputs; `high` if the reference tolerates none beyond it."""
    zeros: bool = False
    """Whether a row of each floating tensor is all zeros, as padding is; not in the trials of `ends`."""
    small: bool = False
    """Whether a row of each floating tensor is `_SMALL` times as large as the others, in the same trials."""
    ends: tuple[tuple[Signs, Distances], ...] = ()
    """Signs and distances of the trials at an end: all negative, all positive, then (several tensors) mixed signs."""
    always: bool = False
    """Whether every trial is varied, because get_inputs() returns the same each time."""
    spikes: float = 0.0
    """How many times as large a few elements of varied trials are (`spiked`); 0.0 if the reference tolerates none."""
    relations: Relations = field(default_factory=Relations)
    """What holds between elements and between inputs in every draw."""

    def apply(self, tensors: Sequence[torch.Tensor], seed: int, kind: Kind = "varied") -> Tensors:
        """Return the first of `choices`; tensors that stay unchanged are returned themselves."""
        return next(self.choices(tensors, seed, kind))[0]

    def choices(self, tensors: Sequence[torch.Tensor], seed: int, kind: Kind) -> Iterator[tuple[Tensors, bool]]:
        """Yield varied copies, the strongest first, and whether they are so large that rounding may decide outputs.

        Args:
            tensors: tensors of one draw.
            seed: seed of the changes.
            kind: kind of the trial; not `drawn`.
        """
        # 8-bit floats are varied in a wider type, since torch has hardly an op on them.
        wide = widened_all(tensors)
        for changed, is_far in self._choices(wide, seed, kind):
            yield narrowed_all(self._structured(wide, changed), wide, tensors), is_far

    def _choices(self, tensors: Sequence[torch.Tensor], seed: int, kind: Kind) -> Iterator[tuple[Tensors, bool]]:
        if kind in ENDS:
            # First as far from zero as the reference accepts, then with the magnitudes that were drawn.
            for farthest in (inf, 1.0):
                yield self.at_end(tensors, ENDS.index(kind), seed, farthest), farthest > 1
            return
        is_large = kind == "large"
        low, high = (self.large / 2, self.large) if is_large and self.large > 1 else (self.low, self.high)
        if self.spikes and not is_large:
            yield self._padded(self.spiked(tensors, seed), seed), True
        scaled = self.scaled_between(tensors, seed, low, high)
        if is_large and (mixed := self._mixed(seed)) is not None:
            # No rows of zeros: where all scores are negative, a key of zeros is the maximum, and hides what it is for.
            yield _striped(scaled, self.at_end(tensors, mixed, seed), seed), True
        yield self._padded(scaled, seed), is_large
        if is_large:
            yield scaled, True  # weaker than the one before: without a row of zeros and a small row

    def _structured(self, tensors: Sequence[torch.Tensor], changed: Tensors) -> Tensors:
        """Restore what held in every draw."""
        if len(tensors) != len(self.learned_roles):  # `get_inputs()` may return another number of tensors each time
            return changed
        return self.relations.restored(tensors, changed, [role.structures for role in self.learned_roles])

    def _mixed(self, seed: int) -> int | None:
        """Return the index of an entry of `ends` with mixed signs far from zero; None where there is none."""
        mixed = [number for number in range(len(ENDS), len(self.ends)) if max(self.ends[number][1]) > 1]
        return mixed[seed % len(mixed)] if mixed else None

    def _padded(self, tensors: Tensors, seed: int) -> Tensors:
        if self.small:
            tensors = self.with_a_small_row(tensors, seed)
        return self.with_a_row_of(0.0, tensors, seed) if self.zeros else tensors

    def at_end(self, tensors: Sequence[torch.Tensor], number: int, seed: int, farthest: float = inf) -> Tensors:
        """Move every tensor to its end (`ends`), at most `farthest` from zero."""
        if len(tensors) != len(self.learned_roles) or not self.ends:
            return list(tensors)
        signs, distances = self.ends[number]
        generator = torch.Generator().manual_seed(seed)
        pairs = zip(tensors, self.learned_roles, strict=True)
        # A tensor that never changes would show the program the same end in every trial.
        fresh = [_redrawn(tensor, generator) if role.kind == "fixed" else tensor for tensor, role in pairs]
        each = zip(fresh, self.learned_roles, signs, distances, strict=True)
        return [at_end(tensor, role, sign, min(size, farthest)) for tensor, role, sign, size in each]

    def scaled_between(self, tensors: Sequence[torch.Tensor], seed: int, low: float, high: float) -> Tensors:
        """Vary the tensors, with each one's scale drawn from [low, high] uniformly in its logarithm."""
        if len(tensors) != len(self.roles):
            return list(tensors)
        generator = torch.Generator().manual_seed(seed)
        pairs = zip(tensors, self.roles, strict=True)
        return [self._changed(tensor, role, (log2(low), log2(high)), generator) for tensor, role in pairs]

    def spiked(self, tensors: Sequence[torch.Tensor], seed: int) -> Tensors:
        """Vary the tensors, none of them enlarged, and make a few elements of large ones many times as large."""
        scaled = self.scaled_between(tensors, seed, self.low, min(1.0, self.high))
        if len(tensors) != len(self.roles):
            return scaled
        generator = torch.Generator().manual_seed(seed)
        pairs = zip(scaled, self.roles, strict=True)
        return [
            _spiked(tensor, self.spikes, generator) if role.is_floating and tensor.numel() >= LEAST_SPIKED else tensor
            for tensor, role in pairs
        ]

    def with_a_row_of(self, size: float, tensors: Sequence[torch.Tensor], seed: int) -> Tensors:
        """Return copies with numbers of this size in slices of each floating tensor along its first axis longer than 2.

        One slice is at the same place in all tensors, as their sum is zero only there. Where there are several tensors,
        each has a second slice at a place that differs between them.
        """
        generator = torch.Generator().manual_seed(seed)
        is_alone = sum(role.is_floating for role in self.roles) == 1
        shared, *positions = torch.rand(1 + len(tensors), generator=generator).tolist()
        pairs = zip(tensors, self.roles, strict=False)
        return [
            _with_rows_of(size, tensor, [shared] if is_alone else [shared, position], generator)
            if role.is_floating
            else tensor
            for (tensor, role), position in zip(pairs, positions, strict=False)
        ]

    def with_a_small_row(self, tensors: Sequence[torch.Tensor], seed: int, scale: float = _SMALL) -> Tensors:
        """Return copies with a slice of each floating tensor, at the same place in all, made `scale` times as large.

        Tensors of half precision stay: squares of such numbers have no digits there.
        """
        position = float(torch.rand((), generator=torch.Generator().manual_seed(seed + 1)))
        return [
            _with_row_scaled(tensor, position, scale)
            if role.is_floating and tensor.dtype is not torch.float16
            else tensor
            for tensor, role in zip(tensors, self.roles, strict=False)
        ]

    def _changed(
        self, tensor: torch.Tensor, role: Role, span: tuple[float, float], generator: torch.Generator
    ) -> torch.Tensor:
        if role.has_other_values:  # such as 0 and -inf: varied as bits, then written with its two numbers again
            plain = replace(role, values=(0.0, 1.0))
            return role.from_bits(self._changed(role.bits(tensor), plain, span, generator), tensor)
        if role.kind == "flipped":
            return _flipped(tensor, generator)
        if role.kind == "mask":
            return _sliced_mask(tensor, role, generator)
        if role.is_sorted:
            return _regrouped(tensor, role, generator)
        if role.kind == "index":
            return role.with_padding(tensor, _extreme(tensor, role, generator))
        if role.kind == "distinct":
            return _reordered(tensor, role, generator)
        if role.kind == "fixed":
            tensor = _redrawn(tensor, generator)
        return self._scaled(tensor, span, generator) if role.is_floating else tensor

    def _scaled(self, tensor: torch.Tensor, span: tuple[float, float], generator: torch.Generator) -> torch.Tensor:
        scale = 2 ** (span[0] + (span[1] - span[0]) * float(torch.rand((), generator=generator)))
        if not self.signs:
            return tensor * scale
        seed = int(torch.randint(1 << 62, (), generator=generator))
        device_generator = torch.Generator(tensor.device).manual_seed(seed)
        is_kept = torch.randint(0, 2, tensor.shape, generator=device_generator, dtype=torch.bool, device=tensor.device)
        sizes, factor = tensor.abs() * scale, torch.tensor(scale, device=tensor.device).to(tensor.dtype)
        mixed = tensor * torch.where(is_kept, factor, -factor)
        # Slices of one sign show a reduction that starts at a wrong value, such as a maximum at 0.
        return by_slices([mixed, sizes, -sizes], some_axis(tensor, generator), generator)


def learn(
    draws: Sequence[Tensors],
    accepts: Callable[[Tensors], bool],
    *,
    is_steady: bool = True,
    agree: Callable[[Tensors, Tensors], bool] = lambda first, second: False,
    accepts_extremes: Callable[[Tensors], bool] | None = None,
    draw_more: Callable[[], Tensors | None] = lambda: None,
    spikes: Sequence[float] = (),
    differ: Callable[[Tensors, Tensors], bool] = lambda first, second: True,
) -> Variation:
    """Find the strongest variation that keeps a reference's outputs usable.

    Args:
        draws: at least two draws of equally many tensors; the first is varied to find out.
        accepts: whether the reference accepts inputs, and its outputs stay finite and well conditioned.
        is_steady: whether outputs are well conditioned on drawn inputs; if not, no limit of enlarged inputs can be
            measured, so inputs are not enlarged.
        agree: whether two sets of inputs give the same outputs, all of them floating: else ties could decide them.
        differ: whether two sets of inputs give outputs that are apart by a tenth of the largest.
        accepts_extremes: like `accepts`, for tensors at one end; None takes `accepts` itself.
        draw_more: makes another draw, or None after enough of them: a few do not tell what holds of integers and masks
            from accidents.
        spikes: sizes of large elements to try (`Variation.spikes`), the largest first.
    """

    def another() -> Tensors | None:
        draw = draw_more()
        return None if draw is None else widened_all(draw)

    wide = [widened_all(draw) for draw in draws]
    while len(wide) < _DRAWS_OF_INTEGERS and _has_integers_that_change(wide) and (draw := another()) is not None:
        wide.append(draw)
    roles, relations = find_roles(wide), find_relations(wide, another)

    def related(changed: Tensors) -> Tensors:
        restored = relations.restored(wide[0], changed, [role.structures for role in roles])
        return narrowed_all(restored, wide[0], draws[0])

    variation = _learn_varied(
        roles,
        wide,
        lambda tensors: accepts(related(tensors)),
        is_steady=is_steady,
        agree=lambda first, second: agree(related(first), related(second)),
        differ=lambda first, second: differ(related(first), related(second)),
    )
    ends = _learn_ends(roles, wide[0], lambda tensors: (accepts_extremes or accepts)(related(tensors)), is_steady)
    candidates = (replace(variation, spikes=size) for size in spikes if is_steady)
    variation = next((each for each in candidates if accepts(related(each.spiked(wide[0], 0)))), variation)
    return replace(variation, learned_roles=tuple(roles), ends=ends, relations=relations)


def _has_integers_that_change(draws: Sequence[Tensors]) -> bool:
    return any(not group[0].is_floating_point() and not unchanged(group) for group in zip(*draws, strict=True))


def _learn_ends(
    roles: Sequence[Role], probe: Tensors, accepts: Callable[[Tensors], bool], is_steady: bool
) -> tuple[tuple[Signs, Distances], ...]:
    count = len(roles)
    sides: list[Signs] = [(-1,) * count, (1,) * count]
    if sum(role.is_floating for role in roles) > 1:
        floating = [sum(role.is_floating for role in roles[:number]) for number in range(count)]
        # Where tensors are multiplied, products of mixed signs are negative, and equal signs never are.
        sides += [tuple((-1) ** (number + first) for number in floating) for first in (0, 1)]
    return tuple((signs, learn_distances(probe, roles, signs, accepts, is_steady)) for signs in sides)


def _learn_varied(
    roles: Sequence[Role],
    draws: Sequence[Tensors],
    accepts: Callable[[Tensors], bool],
    *,
    is_steady: bool,
    agree: Callable[[Tensors, Tensors], bool],
    differ: Callable[[Tensors, Tensors], bool],
) -> Variation:
    variation = Variation((Role("drawn"),) * len(roles), always=all(map(unchanged, zip(*draws, strict=True))))
    # One input at a time: a reference that fails on one varied index may accept all other changes.
    for number, role in enumerate(roles):
        if role.kind not in ("drawn", "scaled"):
            candidate = replace(variation, roles=(*variation.roles[:number], role, *variation.roles[number + 1 :]))
            variation = candidate if accepts(candidate.apply(draws[0], number)) else variation
    pairs = zip(roles, variation.roles, strict=True)
    scaled = tuple(role if role.kind == "scaled" else learned for role, learned in pairs)
    if not any(role.is_floating for role in scaled):
        return variation
    variation = _with_scales(replace(variation, roles=scaled), draws[0], accepts, is_steady) or variation
    small, zero = (variation.with_a_small_row(draws[0], 0, scale) for scale in (_SMALL, 0.0))
    # Where a small row has small results, as of an activation, right programs differ there by rounding alone.
    variation = replace(variation, small=is_steady and accepts(small) and differ(small, zero))
    return _with_zeros(variation, draws[0], accepts, agree)


def _with_zeros(
    variation: Variation, probe: Tensors, accepts: Callable[[Tensors], bool], agree: Callable[[Tensors, Tensors], bool]
) -> Variation:
    """Add rows of zeros if the program is continuous there: rows of `_TINY` must give the same outputs."""
    zeros = variation.with_a_row_of(0.0, probe, 0)
    fits = accepts(zeros) and agree(zeros, variation.with_a_row_of(_TINY, probe, 0))
    return replace(variation, zeros=True) if fits else variation


def _with_scales(
    variation: Variation, probe: Tensors, accepts: Callable[[Tensors], bool], is_steady: bool
) -> Variation | None:
    first = _FIRST_OF_SEVERAL if sum(role.is_floating for role in variation.roles) > 1 else 0

    def usable(low: float, high: float) -> bool:
        return all(accepts(variation.scaled_between(probe, 0, scale, scale)) for scale in (high, low))

    for signs in (True, False):
        variation = replace(variation, signs=signs)
        for high in HIGHS if is_steady else HIGHS[-1:]:
            if usable(LOW, high):
                larges = LARGES[first:] if is_steady else ()
                # A trial draws its scale from half of the largest to the largest: both must be usable.
                large = next((scale for scale in larges if usable(scale / 2, scale)), high)
                return replace(variation, low=LOW, high=high, large=large)
    return None


LEAST_SPIKED = 1 << 16
"""Elements of an input below which a part of them gives another sum in 16 bits too."""
_DENSE = 12
"""Binary logarithm of the elements for each large one, where these are at least 1024 times as large as the others."""
_SPARSE = 14
"""The same where they are less than 1024 and more than 32 times as large."""


def sizes_of_spikes(read: int, written: int) -> tuple[float, ...]:
    """Return sizes of large elements to try, given how many elements an output of 16 bits is made of.

    Large elements make up about half of a sum, or of a sum of squares. Where as much is written as read, they stay so
    small that the others count as before.
    """
    if read < LEAST_SPIKED:
        return ()
    return (4096.0, 1024.0, 128.0, 32.0) if read >= 4096 * written else (128.0, 32.0)


def _spiked(tensor: torch.Tensor, size: float, generator: torch.Generator) -> torch.Tensor:
    interval = 1 << (_DENSE if size >= 1024 else _SPARSE if size > 32 else 10)
    count = max(_FEWEST_SPIKES, tensor.numel() // interval)
    indices = torch.randint(tensor.numel(), (count,), generator=generator).to(tensor.device)
    # Measured in the input's root mean square, so that the large elements make up the same part of any sum.
    flat, unit = tensor.reshape(-1).clone(), tensor.double().square().mean().sqrt()
    sizes = size * unit * (1 + _SPREAD * torch.rand(count, generator=generator)).to(tensor.device)
    sizes.clamp_(max=torch.finfo(tensor.dtype).max / _HEADROOM)
    flat[indices] = torch.where(flat[indices] < 0, -sizes, sizes).to(tensor.dtype)
    return torch.empty_like(tensor).copy_(flat.view(tensor.shape))


def _sliced_mask(tensor: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor:
    """Mix slices with none, all, one and all but one set, and slices as drawn."""
    axis = some_axis(tensor, generator)
    minority = int(torch.randint(2, (), generator=generator))
    singles = [single(tensor, axis, value, generator) for value in (minority, 1 - minority)]
    ends = [at_end(tensor, role, sign, 1.0) for sign in (-1, 1)]
    return by_slices([*singles, *ends, tensor], axis, generator)


def _reordered(tensor: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor:
    """Permute integers that never repeat in a row; padding stays in its places."""
    rows = tensor.reshape(-1, tensor.shape[-1] if tensor.shape[-1] > 1 else tensor.numel())
    order = torch.rand(rows.shape, generator=generator).to(tensor.device)
    is_padding = torch.zeros_like(order) if role.padding is None else (rows == role.padding).to(order)
    # Integers in a random order go to the places that hold integers, padding to its own.
    values, places = (order + is_padding).argsort(-1), is_padding.argsort(dim=-1, stable=True)
    return torch.empty_like(tensor).copy_(rows.scatter(-1, places, rows.gather(-1, values)).view(tensor.shape))


def _some_indices(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Choose one in `_PART` places of a tensor, but at least one place."""
    count = max(1, tensor.numel() // _RARE_PART)
    return torch.randint(tensor.numel(), (count,), generator=generator).to(tensor.device)


def _with_rows_of(
    size: float, tensor: torch.Tensor, positions: list[float], generator: torch.Generator
) -> torch.Tensor:
    """Fill slices at these fractions of the axis; only the first where two would be most of the tensor.

    Of two slices none is filled: half of the input would be missing, and with it what a race leaves out.
    """
    axis = _row_axis(tensor)
    if axis is None:
        return tensor
    changed, length = tensor.clone(), tensor.shape[axis]
    # The smallest subnormal number: `_TINY` itself is zero in half precision, and would show no difference.
    smallest = torch.finfo(tensor.dtype).smallest_normal * torch.finfo(tensor.dtype).eps
    for row in {int(position * length) for position in positions[: 1 + (length >= _RARE_PART)]}:
        row_values = changed.select(axis, row)
        noise = torch.rand(row_values.shape, generator=generator) * max(size, smallest) if size else torch.zeros(())
        row_values.copy_(noise)
    return changed


def _with_row_scaled(tensor: torch.Tensor, position: float, scale: float) -> torch.Tensor:
    """Scale the slice at this fraction of the axis."""
    axis = _row_axis(tensor)
    if axis is None:
        return tensor
    changed = tensor.clone()
    changed.select(axis, int(position * tensor.shape[axis])).mul_(scale)
    return changed


def _row_axis(tensor: torch.Tensor) -> int | None:
    """Return the first axis of a floating tensor, but for the last, that is longer than 2; None without one."""
    if not tensor.is_floating_point():
        return None
    return next((axis for axis, length in enumerate(tensor.shape[:-1]) if length > 2), None)


def _striped(tensors: Tensors, opposites: Tensors, seed: int) -> Tensors:
    """Mix slices of both lists' floating tensors along the last axis, at the same places in tensors of one length.

    A product over that axis has the sign of the larger numbers, and each slice by itself shows what its numbers do.
    """
    return [
        by_slices([tensor, opposite], _last_axis(tensor), torch.Generator().manual_seed(seed))
        if tensor.is_floating_point() and tensor is not opposite
        else tensor
        for tensor, opposite in zip(tensors, opposites, strict=True)
    ]


def _last_axis(tensor: torch.Tensor) -> int | None:
    return next((axis for axis in reversed(range(tensor.dim())) if tensor.shape[axis] > 1), None)


def _flipped(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    flat, indices = tensor.reshape(-1).clone(), _some_indices(tensor, generator)
    flat[indices] = (flat[indices] == 0).to(tensor.dtype)
    return torch.empty_like(tensor).copy_(flat.view(tensor.shape))


def _extreme(tensor: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor:
    """Replace a part of the elements by the lowest, the highest, and repetitions of another one."""
    flat, indices = tensor.reshape(-1).clone(), _some_indices(tensor, generator)
    low, high = role.bounds(tensor)
    flat[indices[::3]], flat[indices[1::3]], flat[indices[2::3]] = low, high, flat[indices[-1]].clone()
    return torch.empty_like(tensor).copy_(flat.view(tensor.shape))


def _regrouped(tensor: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor:
    """Permute the gaps of sorted integers, and join some: the first and the last, and the largest gap seen, stay."""
    gaps = tensor.diff(dim=-1)
    order = torch.rand(gaps.shape, generator=generator).argsort(-1).to(tensor.device)
    gaps = gaps.gather(-1, order)
    # Neighbouring gaps change by the same amount in opposite directions, so that the last integer stays.
    shrinking, growing = gaps[..., 0:-1:2], gaps[..., 1::2]
    moved = torch.minimum(shrinking - role.gaps[0], role.gaps[1] - growing).clamp(min=0)
    moved *= torch.randint(0, 2, moved.shape, generator=generator).to(tensor.device)
    shrinking -= moved
    growing += moved
    return torch.empty_like(tensor).copy_(torch.cat([tensor[..., :1], tensor[..., :1] + gaps.cumsum(-1)], -1))


def _redrawn(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    value = constant_value(tensor)
    if value is not None:
        return renewed(tensor, value, generator)
    return tensor * (0.5 + torch.rand(tensor.shape, generator=generator)).to(tensor)
