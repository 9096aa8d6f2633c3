# SPDX-License-Identifier: Apache-2.0
"""Learns what holds between the elements of a task's inputs in every draw, and makes it hold in a varied trial too.

A rotary table repeats its halves, the first key of each query is visible, offsets are the cumulated counts: a correct
kernel may rely on all of that, so a trial that breaks it refuses an honest program. Three families are learned:

- cells: elements that are always equal to each other, of one tensor or of several, and elements that never change;
- maps: a tensor that is a function of another one, such as counts, their cumulated sums or the norms of rows;
- segments: offsets into the elements of another tensor that ascend between two offsets, as those of sparse rows do;
  and lengths of rows that end with padding.

What few draws show by accident is no relation: it must be a hundred times as frequent as chance explains.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import factorial, isfinite, prod
from operator import is_not

import torch

from verl_kernel.env.reference.input_structure import holds, restored
from verl_kernel.env.reference.roles import padding_of

Tensors = Sequence[torch.Tensor]
MOST_CELLS = 1 << 23
"""Inputs of more elements are not searched for cells: sorting them takes seconds."""
_CERTAIN = 100
"""How many times as frequent as chance explains equal or constant elements must be."""
_CONSTANT = -1
"""In place of a cell's index: the cell never changes."""
_ERROR = 1e-3
"""Relative error of a floating map: rounding to half precision, and sums in another order."""
_SAMPLE = 64
"""Elements by which most pairs of inputs are told apart."""
_FEWEST = 3
"""Fewest elements, in all draws, of a tensor that is a function of another by no accident."""


@dataclass(frozen=True)
class Map:
    """One input that is a function of another one in every draw, up to a factor."""

    target: int
    """Index of the input that follows; `source` likewise."""
    source: int
    name: str
    """Name of the function in `INTEGER_MAPS` or `FLOAT_MAPS`."""
    factor: float = 1.0
    values: tuple[float, float] = (0.0, 1.0)
    """Where a mask chooses between two numbers: that of an element that is not set first."""


@dataclass(frozen=True)
class Relations:
    """What holds of a task's inputs in every draw."""

    cells: str = ""
    """Packed int32 (elements of all inputs,): the first element equal to each one in every draw, or `_CONSTANT`."""
    maps: tuple[Map, ...] = ()
    unchanged: tuple[int, ...] = ()
    """Indices of inputs that are left as they are drawn: offsets, the values that ascend between them, and lengths of
    padded rows."""

    def restored(
        self, originals: Tensors, changed: Tensors, structures: Sequence[tuple[str, ...]]
    ) -> list[torch.Tensor]:
        """Return the changed tensors with all relations and structures; those that cannot have them as drawn.

        Args:
            originals: tensors of one draw.
            changed: the same tensors after a change; one that is the original itself is not changed.
            structures: names of the structures of each tensor (`structure`).
        """
        changed = [
            original if number in self.unchanged else varied
            for number, (original, varied) in enumerate(zip(originals, changed, strict=True))
        ]
        # Structures of single tensors first, then relations: a relation computes one tensor from another.
        changed = self._related(originals, self._structured(originals, changed, structures))
        result = [
            varied if original is varied or holds(names, original, varied) else original
            for original, varied, names in zip(originals, changed, structures, strict=True)
        ]
        if any(map(is_not, result, changed)):  # a tensor was put back: what hangs on it follows
            result = self._related(originals, result)
            # Relations and structures contradict each other on these numbers: the trial takes them as drawn.
            if not all(holds(*each) for each in zip(structures, originals, result, strict=True)):
                return list(originals)
        return result

    @staticmethod
    def _structured(originals: Tensors, changed: Tensors, structures: Sequence[tuple[str, ...]]) -> list[torch.Tensor]:
        each = zip(originals, changed, structures, strict=True)
        return [
            original if original is varied else restored(names, original, varied) for original, varied, names in each
        ]

    def _related(self, originals: Tensors, changed: Tensors) -> list[torch.Tensor]:
        result = _with_cells(unpacked(self.cells), originals, changed) if self.cells else list(changed)
        for relation in self.maps:
            if result[relation.source] is not originals[relation.source]:
                result[relation.target] = _mapped(relation, result[relation.source], originals[relation.target])
        return result


def find_relations(draws: Sequence[Tensors], draw_more: Callable[[], Tensors | None] = lambda: None) -> Relations:
    """Find the relations that all draws have.

    Args:
        draws: at least two draws of equally many tensors.
        draw_more: makes another draw, or None if there have been enough; asked where these draws do not tell a
            relation from an accident, as for masks.
    """
    groups = list(zip(*draws, strict=True))
    is_sized = any(len({tensor.shape for tensor in group}) > 1 for group in groups)
    # Cells are compared by their position, which means nothing where sizes change.
    cells = "" if is_sized else _find_cells(list(draws), draw_more)
    return Relations(cells, tuple(_find_maps(groups)), tuple(sorted(_find_segments(groups) | _find_lengths(groups))))


# Cells.


def _find_cells(draws: list[Tensors], draw_more: Callable[[], Tensors | None]) -> str:
    """Return the packed index of equal and constant cells; empty where none are certain."""
    groups = list(zip(*draws, strict=True))
    searched = [number for number, group in enumerate(groups) if _is_searched(group)]
    if not searched or sum(tensor.numel() for tensor in draws[0]) > MOST_CELLS:
        return ""
    fixed = [number for number in searched if _is_fixed(groups[number])]
    index = torch.arange(sum(tensor.numel() for tensor in draws[0]))
    for number in fixed:  # only equal values within the one draw can be seen
        _enter(index, _Evidence([_flat([draws[0][number]])], is_fixed=True), [number], draws[0])
    changing = [number for number in searched if number not in fixed]
    # As many draws as it takes to tell relations from accidents, or as there are.
    while changing:
        evidence = _Evidence(_table(draws, changing))
        if evidence.is_certain or (draw := draw_more()) is None:
            _enter(index, evidence, changing, draws[0])
            break
        draws.append(draw)
    return "" if torch.equal(index, torch.arange(len(index))) else packed(index)


def _table(draws: Sequence[Tensors], numbers: Sequence[int]) -> list[torch.Tensor]:
    """Return the cells of these inputs in each draw, float64 (cells,); where one was padding, no two are equal."""
    groups = [_without_padding([draw[number] for draw in draws]) for number in numbers]
    return [_flat(list(tensors)) for tensors in zip(*groups, strict=True)]


def _without_padding(group: Tensors) -> Tensors:
    """Give each cell that is padding in some draw a number of its own: in other draws it may hold anything."""
    padding = padding_of(group) if _is_whole(group[0]) else None
    if padding is None:
        return group
    is_padding = torch.stack([tensor == padding for tensor in group]).any(0)
    own = torch.arange(is_padding.numel(), device=is_padding.device).view(is_padding.shape) + (1 << 50)
    signs = itertools.cycle((1, -1))  # nor is one constant
    return [torch.where(is_padding, own * next(signs), tensor.long()) for tensor in group]


def _is_searched(group: Sequence[torch.Tensor]) -> bool:
    """Whether equal elements of an input mean something: not of masks and integers that are the same in every draw."""
    first = group[0]
    if not first.numel() or first.is_complex() or all(is_one_number(tensor) for tensor in group):
        return False
    is_binary = bool(((first == 0) | (first == 1)).all())
    return not _is_fixed(group) or (first.is_floating_point() and not is_binary)


def _is_fixed(group: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(group[0], tensor) for tensor in group[1:])


def is_one_number(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds one number everywhere, or none."""
    return not tensor.numel() or bool((tensor == tensor.reshape(-1)[0]).all())


class _Evidence:
    """Which cells are equal or constant in every draw, and how many of them chance explains.

    Args:
        table: of each draw, the values of all cells, float64 (cells,).
        is_fixed: whether the cells never change: then zeros stay, and equal ones stay equal, but a mask of two values,
            such as 0 and -inf, may change anywhere else.
    """

    def __init__(self, table: Sequence[torch.Tensor], is_fixed: bool = False) -> None:
        self._is_fixed = is_fixed
        self._constant = torch.stack([values == (0.0 if is_fixed else table[0]) for values in table]).all(0)
        self._classes = _classes(table)
        free = [values[~self._constant] for values in table]
        is_all_apart = len(self._classes) and int(self._classes.max()) == len(self._classes) - 1
        self._equal = 0.0 if is_all_apart else _equal_pairs(self._classes[~self._constant])
        # Pairs that are equal in some draws only show how often chance makes numbers equal.
        self._equal_by_chance = _pairs_by_chance(free, self._equal)
        self._constant_by_chance = 0.0
        if bool(self._constant.any()):
            # A cell is constant by chance if it draws the same value each time: the sum of p**n over the values.
            shares = _occurrences(free[0]) / max(len(free[0]), 1)
            self._constant_by_chance = len(self._classes) * float((shares ** len(table)).sum())

    @property
    def has_equal(self) -> bool:
        """Whether equal cells are no accident."""
        return int(self._classes.max()) > 1 if self._is_fixed else self._equal > _CERTAIN * self._equal_by_chance

    @property
    def has_constant(self) -> bool:
        """Whether constant cells are no accident."""
        count = int(self._constant.sum())
        return count > 1 if self._is_fixed else count > _CERTAIN * self._constant_by_chance

    @property
    def is_certain(self) -> bool:
        """Whether more draws would say no more."""
        is_equal = self._equal == 0 or self.has_equal
        return is_equal and (not bool(self._constant.any()) or self.has_constant)

    def index(self) -> torch.Tensor:
        """Return the index of each cell's first equal, or `_CONSTANT`, int64 (cells,)."""
        own = torch.arange(len(self._classes))
        index = own
        if self.has_equal:
            index = torch.full_like(own, len(own)).scatter_reduce(0, self._classes, own, "amin")[self._classes]
        return torch.where(self._constant, _CONSTANT if self.has_constant else own, index)


def _classes(table: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the number of each cell's class, int64 (cells,): cells of a class have equal values in every draw."""
    # One sort of a hash of each cell's bits in all draws, as sorting each draw takes seconds for millions of cells.
    factors = torch.randint(1 << 62, (len(table),), generator=torch.Generator().manual_seed(0)) * 2 + 1
    bits = (_folded((values + 0.0).view(torch.int64)) for values in table)  # -0.0 equals 0.0
    keys = sum((_folded(each * factor) for each, factor in zip(bits, factors, strict=True)), torch.tensor(0))
    ordered = keys.sort().values
    return _ranks(keys) if bool((ordered[1:] == ordered[:-1]).any()) else torch.arange(len(keys))


def _folded(bits: torch.Tensor) -> torch.Tensor:
    """Mix the upper bits into the lower ones, of which simple numbers have none and products keep few."""
    return bits ^ (bits >> 32)


def _pairs_by_chance(table: Sequence[torch.Tensor], always: float) -> float:
    """Return how many pairs chance alone makes equal in every draw, by the pairs that are equal in some draws only.

    Args:
        table: of each draw, the values of the cells that are not constant.
        always: number of pairs that are equal in every draw.
    """
    if not always:
        return 0.0
    pairs = len(table[0]) * (len(table[0]) - 1) / 2
    other_pairs = max(len(table) * (pairs - always), 1.0)
    # One is added to both counts, so that a few draws without an accidental pair do not prove that there is none.
    sometimes = sum(map(_equal_pairs, table)) - len(table) * always
    return float(pairs * min((sometimes + 1) / (other_pairs + 1), 1.0) ** len(table))


def _ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the rank of each value among the distinct ones, int64."""
    _, ranks = torch.unique(values, return_inverse=True)
    return torch.as_tensor(ranks)


def _occurrences(values: torch.Tensor) -> torch.Tensor:
    """Return how often each distinct value occurs, float64."""
    return _ranks(values).bincount().double()


def _equal_pairs(values: torch.Tensor) -> float:
    counts = _occurrences(values)
    return float((counts * (counts - 1)).sum() / 2)


def _flat(tensors: Tensors) -> torch.Tensor:
    """Return all elements as float64 (elements,); NaN, which equals nothing, as the largest number."""
    flat = torch.cat([tensor.reshape(-1).double().cpu() for tensor in tensors])
    return flat.nan_to_num(nan=torch.finfo(torch.float64).max, posinf=torch.inf, neginf=-torch.inf)


def _enter(index: torch.Tensor, evidence: _Evidence, searched: Sequence[int], tensors: Tensors) -> None:
    """Enter what was found of the elements of some tensors into the index over those of all."""
    starts = torch.tensor([0, *(tensor.numel() for tensor in tensors)]).cumsum(0)
    positions = torch.cat([torch.arange(int(starts[number]), int(starts[number + 1])) for number in searched])
    first_equal = evidence.index()
    index[positions] = torch.where(first_equal < 0, first_equal, positions[first_equal.clamp(min=0)])


def _with_cells(index: torch.Tensor, originals: Tensors, changed: Tensors) -> list[torch.Tensor]:
    """Give cells the value of their first equal, and constant ones that which was drawn."""
    sizes = [tensor.numel() for tensor in originals]
    if sum(sizes) != len(index):
        return list(changed)
    is_own = index == torch.arange(len(index))
    values = None
    result, start = [], 0
    for original, varied in zip(originals, changed, strict=True):
        part, own = index[start : start + original.numel()], is_own[start : start + original.numel()]
        start += original.numel()
        if bool(own.all()):
            result.append(varied)
            continue
        # Float64 holds every element, but for int64 beyond 2**53; made only where a tensor needs it.
        values = _flat(changed) if values is None else values
        copied = values[part.clamp(min=0)].to(original.device).view(original.shape)
        fixed = (part == _CONSTANT).to(original.device).view(original.shape)
        combined = torch.where(own.to(original.device).view(original.shape), varied, copied.to(original.dtype))
        result.append(torch.empty_like(original).copy_(torch.where(fixed, original, combined)))
    return result


def packed(index: torch.Tensor) -> str:
    """Return an index as text: what repeats with a period, as equal halves do, takes few bytes."""
    # Differences of neighbours: an index that counts upwards becomes ones, which compress to almost nothing.
    steps = index.diff(prepend=index[:1] * 0).int().numpy().tobytes()
    return base64.b64encode(zlib.compress(steps, 6)).decode()


@lru_cache(maxsize=8)
def unpacked(text: str) -> torch.Tensor:
    """Return what `packed` packed, int64 (elements,); callers must not change it."""
    steps = torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=torch.int32)
    return steps.long().cumsum(0)


# Maps.


def _starts(counts: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(counts.cumsum(-1), (1, 0))


_CHOICE = "chosen by a mask"
Function = Callable[[torch.Tensor], torch.Tensor]
INTEGER_MAPS: dict[str, Function] = {
    "itself": lambda tensor: tensor,
    "ends": lambda counts: counts.cumsum(-1),
    "starts": _starts,
    "starts without the last": lambda counts: _starts(counts)[..., :-1],
    "gaps": lambda offsets: offsets.diff(dim=-1),
    "counts": lambda ids: ids.reshape(-1).bincount() if int(ids.min()) >= 0 else ids.reshape(-1)[:0],
    "order": lambda ids: ids.argsort(dim=-1, stable=True),
    "sorted": lambda ids: ids.sort(dim=-1).values,
    "opposite": lambda mask: 1 - mask,
    "sum": lambda rows: rows.sum(-1),
    "largest": lambda rows: rows.amax(-1),
}
FLOAT_MAPS: dict[str, Function] = {
    "itself": lambda tensor: tensor,
    "reciprocal": torch.reciprocal,
    "exponential": torch.exp,
    "logarithm": torch.log,
    "root": torch.sqrt,
    "opposite": lambda shares: 1 - shares,
    "sum": lambda rows: rows.sum(-1),
    "largest": lambda rows: rows.amax(-1),
    "largest size": lambda rows: rows.abs().amax(-1),
    "largest size of all": lambda rows: rows.abs().amax().reshape(1),
    "norm": lambda rows: rows.norm(dim=-1),
    "reciprocal of the norm": lambda rows: rows.norm(dim=-1).reciprocal(),
    "squares": lambda rows: rows.square().sum(-1),
    "logsumexp": lambda rows: rows.logsumexp(-1),
}
"""Functions that make one input of another, by name, up to a factor; each may fail on tensors that it is not for."""


def _find_maps(groups: Sequence[Sequence[torch.Tensor]]) -> list[Map]:
    maps: list[Map] = []
    for target, targets in enumerate(groups):
        if targets[0].numel() * len(targets) < _FEWEST or (_is_fixed(targets) and not _is_list(targets[0])):
            continue
        # No chains: a source that follows another input would have to be restored before its target.
        followers = {relation.target for relation in maps}
        for source, sources in enumerate(groups):
            if source == target or target in {relation.source for relation in maps} or source in followers:
                continue
            relation = _find_map(target, targets, source, sources)
            if relation is not None:
                maps.append(relation)
                break
    return maps


def _is_list(tensor: torch.Tensor) -> bool:
    """Whether integers are so many that one draw of them shows what they are made of, as starts of their lengths."""
    return _is_whole(tensor) and tensor.numel() >= _FEWEST and not is_one_number(tensor)


def _find_map(target: int, targets: Tensors, source: int, sources: Tensors) -> Map | None:
    is_floating = sources[0].is_floating_point()
    if not is_floating and targets[0].is_floating_point():  # a mask, and what is added to scores for it
        return _find_choice(target, targets, source, sources)
    if is_floating != targets[0].is_floating_point() or sources[0].is_complex() or not all(map(torch.numel, sources)):
        return None
    for name in FLOAT_MAPS if is_floating else INTEGER_MAPS:
        if is_floating and not _may_be(name, targets[0], sources[0]):
            continue
        factors = (_factor(name, *pair) for pair in zip(targets, sources, strict=True))
        first = next(factors)
        if first is not None and all(
            factor is not None and abs(factor - first) <= _ERROR * abs(first) for factor in factors
        ):
            return Map(target, source, name, first)
    return None


def _find_choice(target: int, targets: Tensors, source: int, sources: Tensors) -> Map | None:
    """Return the map from a mask to the numbers between which it chooses, such as 0 and -inf."""
    if [tensor.numel() for tensor in targets] != [tensor.numel() for tensor in sources]:
        return None
    flat = torch.cat([tensor.reshape(-1) for tensor in targets])
    bits = torch.cat([tensor.reshape(-1) for tensor in sources])
    is_set = bits != 0
    if not bool(((bits == 0) | (bits == 1)).all()) or bool(is_set.all()) or not bool(is_set.any()):
        return None
    sides = flat[~is_set], flat[is_set]
    if not all(bool((side == side[0]).all()) for side in sides) or bool(sides[0][0] == sides[1][0]):
        return None
    return Map(target, source, _CHOICE, values=(float(sides[0][0]), float(sides[1][0])))


def _may_be(name: str, target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether the first elements, or the first rows, allow a map: most pairs of inputs are told apart by these."""
    if target.numel() == source.numel():
        target, source = target.reshape(-1)[:_SAMPLE], source.reshape(-1)[:_SAMPLE]
    elif source.dim() and target.numel() * source.shape[-1] == source.numel():
        target, source = target.reshape(-1)[:_FEWEST], source.reshape(-1, source.shape[-1])[:_FEWEST]
    return _factor(name, target, source) is not None


def _factor(name: str, target: torch.Tensor, source: torch.Tensor) -> float | None:
    """Return the factor between a tensor and a function of another one; None where there is none."""
    try:
        mapped = _apply_map(name, source, target)
    except (RuntimeError, IndexError):  # not a function of such tensors
        return None
    if mapped.numel() != target.numel() or (
        mapped.dim() > 1 and _without_ones(mapped.shape) != _without_ones(target.shape)
    ):
        return None
    mapped, expected = mapped.reshape(-1).double(), target.reshape(-1).double()
    if not target.is_floating_point():
        return 1.0 if torch.equal(mapped, expected) else None
    # Of least squares, as rounding moves each element a little.
    size = float(mapped.square().sum())
    factor = float((mapped * expected).sum()) / size if size > 0 else 0.0
    if not factor or not isfinite(factor):
        return None
    error = _ERROR * float(expected.abs().max())
    return factor if torch.allclose(factor * mapped, expected, rtol=_ERROR, atol=error) else None


def _mapped(relation: Map, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the target of a map whose source was changed; as drawn where the function fails on it."""
    if relation.name == _CHOICE:
        unset, is_set = (torch.full_like(target, value) for value in relation.values)
        return torch.where(source.reshape(target.shape) != 0, is_set, unset)
    try:
        result = _apply_map(relation.name, source, target) * (relation.factor if source.is_floating_point() else 1)
    except (RuntimeError, IndexError):
        return target
    return torch.empty_like(target).copy_(result.reshape(target.shape)) if result.numel() == target.numel() else target


def _apply_map(name: str, source: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    is_floating = source.is_floating_point()
    mapped = FLOAT_MAPS[name](source.double()) if is_floating else INTEGER_MAPS[name](source.long())
    # `bincount` ends with the largest id that was drawn; the input may be longer.
    missing = like.numel() - mapped.numel()
    return torch.nn.functional.pad(mapped, (0, missing)) if name == "counts" and missing > 0 else mapped


def _without_ones(shape: torch.Size) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


# Segments.


def _find_segments(groups: Sequence[Sequence[torch.Tensor]]) -> set[int]:
    """Return offsets and the integers that ascend between them in every draw."""
    unchanged = set[int]()
    flat = [number for number, group in enumerate(groups) if _is_flat(group)]
    for offsets in flat:
        for values in flat:
            pairs = list(zip(groups[offsets], groups[values], strict=True))
            if offsets != values and all(_are_segments(*pair) for pair in pairs):
                unchanged |= {offsets, values}
    return unchanged


def _is_flat(group: Sequence[torch.Tensor]) -> bool:
    return all(t.dim() == 1 and t.numel() > 1 and not t.is_floating_point() and not t.is_complex() for t in group)


def _are_segments(offsets: torch.Tensor, values: torch.Tensor) -> bool:
    """Whether offsets divide all values into segments in which they ascend."""
    offsets = offsets.long()
    if int(offsets[0]) != 0 or int(offsets[-1]) != values.numel() or bool((offsets.diff() < 0).any()):
        return False
    # Within a segment the integers must ascend; where one begins they may fall.
    is_first = torch.zeros(values.numel() + 1, dtype=torch.bool)
    is_first[offsets.cpu()] = True
    ascends = (values.long().diff() > 0).cpu()
    return bool((ascends | is_first[1:-1]).all())


def _find_lengths(groups: Sequence[Sequence[torch.Tensor]]) -> set[int]:
    """Return integers that decide in every draw where the padding of a table's rows begins."""
    tables = [group for group in groups if all(t.dim() == 2 and t.numel() and _is_whole(t) for t in group)]
    padded = [(group, padding) for group in tables if (padding := padding_of(group)) is not None]
    return {
        number
        for number, group in enumerate(groups)
        if all(map(_is_whole, group)) and any(_are_lengths(group, *table) for table in padded)
    }


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype is not torch.bool


def _are_lengths(lengths: Tensors, tables: Tensors, padding: int) -> bool:
    """Whether longer rows of tables, by these lengths, never have fewer places before their padding."""
    if any(size.numel() != len(table) for size, table in zip(lengths, tables, strict=True)):
        return False
    kept = [table != padding for table in tables]
    if any(bool((row.diff(dim=-1) & row[:, 1:]).any()) for row in kept):  # an integer behind padding
        return False
    pairs = zip(
        torch.cat([size.reshape(-1) for size in lengths]).tolist(), torch.cat(kept).sum(-1).tolist(), strict=True
    )
    ordered = sorted(set(pairs))
    counts = [count for _, count in ordered]
    # In so many orders would the counts stand by chance, and only one ascends.
    orders = factorial(len(counts)) // prod(factorial(counts.count(count)) for count in set(counts))
    return counts == sorted(counts) and orders >= _CERTAIN
