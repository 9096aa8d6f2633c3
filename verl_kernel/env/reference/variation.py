# SPDX-License-Identifier: Apache-2.0
"""How a task's inputs are varied beyond what `get_inputs()` draws, as far as its reference bears it.

Floating inputs get other scales, below and above one, other signs, and a row of zeros; masks that are all true or
nearly so get the rare value in some places; integers the ends of their range and repeated values; what never changes
is drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import log2
from typing import Any

import torch

from verl_kernel.env.reference.roles import Role, find_roles, unchanged
from verl_kernel.env.weights import constant_value, renewed

LOW = 0.125
"""Smallest scale of a varied trial."""
HIGHS = (8.0, 4.0, 2.0, 1.0)
"""Largest scales of a varied trial, the first that the reference bears."""
LARGES = (256.0, 64.0, 16.0)
"""Scales of the trial of large inputs."""
_TINY = 1e-30
"""Nearly zero: its square is zero in float32."""
_PART = 4
"""One element in so many gets a rare value."""
_JITTER = {torch.float64: 1e-10, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative difference that rounding alone makes between two correct programs, by dtype."""
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Variation:
    """What varied trials change."""

    roles: tuple[Role, ...]
    signs: bool = False
    low: float = 1.0
    high: float = 1.0
    large: float = 1.0
    """Scale of the trial of large inputs; 1.0 if the reference bears none."""
    zeros: bool = False
    """Whether a row of each floating tensor is all zeros, as padding is, where inputs are not large."""
    always: bool = False
    """Whether every trial is varied, because get_inputs() returns the same each time."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"roles": [asdict(role) for role in self.roles]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Variation:
        """Read what `to_json` wrote."""
        return cls(**{**data, "roles": tuple(Role(**role) for role in data["roles"])})

    def apply(self, tensors: Sequence[torch.Tensor], seed: int, large: bool = False) -> Tensors:
        """Varied copies; tensors that are left alone are returned as they are.

        Args:
            tensors: one draw.
            seed: of the changes.
            large: whether scales are those of the trial of large inputs.
        """
        low, high = (self.large / 2, self.large) if large and self.large > 1 else (self.low, self.high)
        changed = self.scaled_between(tensors, seed, low, high)
        return self.with_a_row_of(0.0, changed, seed) if self.zeros and not large else changed

    def scaled_between(self, tensors: Sequence[torch.Tensor], seed: int, low: float, high: float) -> Tensors:
        """The same with each tensor's scale drawn from [low, high], evenly by its logarithm."""
        if len(tensors) != len(self.roles):
            return list(tensors)
        generator = torch.Generator().manual_seed(seed)
        pairs = zip(tensors, self.roles, strict=True)
        return [self._changed(tensor, role, (log2(low), log2(high)), generator) for tensor, role in pairs]

    def with_a_row_of(self, size: float, tensors: Sequence[torch.Tensor], seed: int) -> Tensors:
        """Copies with numbers of this size in a slice of each floating tensor, along its first axis longer than one."""
        generator = torch.Generator().manual_seed(seed)
        pairs = zip(tensors, self.roles, strict=False)
        return [_with_a_row_of(size, tensor, generator) if role.is_floating else tensor for tensor, role in pairs]

    def _changed(
        self, tensor: torch.Tensor, role: Role, span: tuple[float, float], generator: torch.Generator
    ) -> torch.Tensor:
        if role.kind == "flipped":
            return _flipped(tensor, generator)
        if role.kind == "index":
            return _extreme(tensor, role, generator)
        if role.kind == "fixed":
            tensor = _redrawn(tensor, generator)
        return self._scaled(tensor, span, generator) if role.is_floating else tensor

    def _scaled(self, tensor: torch.Tensor, span: tuple[float, float], generator: torch.Generator) -> torch.Tensor:
        scale = 2 ** (span[0] + (span[1] - span[0]) * float(torch.rand((), generator=generator)))
        if not self.signs:
            return tensor * scale
        here = torch.Generator(tensor.device).manual_seed(int(torch.randint(1 << 62, (), generator=generator)))
        flips = torch.randint(0, 2, tensor.shape, generator=here, device=tensor.device) * 2 - 1
        return tensor * (scale * flips).to(tensor.dtype)


def learn(
    draws: Sequence[Tensors],
    bears: Callable[[Tensors], bool],
    is_steady: bool = True,
    agree: Callable[[Tensors, Tensors], bool] = lambda one, other: False,
) -> Variation:
    """The strongest variation that a reference bears.

    Args:
        draws: at least two draws of as many tensors; the first is varied to find out.
        bears: whether the reference accepts inputs, and its outputs stay finite and well conditioned.
        is_steady: whether outputs are well conditioned at all; if not, nobody could tell where they cease to be, so
            inputs are not enlarged.
        agree: whether two sets of inputs give the same outputs, all of them floating: else ties could decide them.
    """
    roles = find_roles(draws)
    found = Variation((Role("drawn"),) * len(roles), always=all(map(unchanged, zip(*draws, strict=True))))
    for number, role in enumerate(roles):
        if role.kind not in ("drawn", "scaled"):
            tried = replace(found, roles=(*found.roles[:number], role, *found.roles[number + 1 :]))
            found = tried if bears(tried.apply(draws[0], number)) else found
    scaled = tuple(role if role.kind == "scaled" else kept for role, kept in zip(roles, found.roles, strict=True))
    if not any(role.is_floating for role in scaled):
        return found
    found = _with_scales(replace(found, roles=scaled), draws[0], bears, is_steady) or found
    return _with_zeros(found, draws[0], bears, agree)


def _with_zeros(
    found: Variation, probe: Tensors, bears: Callable[[Tensors], bool], agree: Callable[[Tensors, Tensors], bool]
) -> Variation:
    """Add rows of zeros if the program is continuous there: rows of `_TINY` must give the same outputs."""
    zeros = found.with_a_row_of(0.0, probe, 0)
    fits = bears(zeros) and agree(zeros, found.with_a_row_of(_TINY, probe, 0))
    return replace(found, zeros=True) if fits else found


def _with_scales(
    found: Variation, probe: Tensors, bears: Callable[[Tensors], bool], is_steady: bool
) -> Variation | None:
    def usable(low: float, high: float) -> bool:
        return all(bears(found.scaled_between(probe, 0, scale, scale)) for scale in (high, low))

    for signs in (True, False):
        found = replace(found, signs=signs)
        for high in HIGHS if is_steady else HIGHS[-1:]:
            if usable(LOW, high):
                larges = LARGES if is_steady else ()
                large = next((scale for scale in larges if usable(scale / 2, scale)), 1.0)
                return replace(found, low=LOW, high=high, large=large)
    return None


def jittered(tensors: Sequence[torch.Tensor]) -> Tensors:
    """Copies with floating numbers, 0 and 1 aside, changed by a few units in the last place, up or down."""
    generator = torch.Generator().manual_seed(0)
    return [_jittered(tensor, generator) if tensor.is_floating_point() else tensor for tensor in tensors]


def _jittered(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    ends = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8).to(tensor.device) * 2 - 1
    moved = tensor * (1 + ends.double() * _JITTER[tensor.dtype]).to(torch.promote_types(tensor.dtype, torch.float32))
    return torch.where((tensor == 0) | (tensor == 1), tensor, moved.to(tensor.dtype))


def _chosen(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Places of at most a part of the elements, at least one."""
    count = max(1, tensor.numel() // _PART)
    return torch.randint(tensor.numel(), (count,), generator=generator).to(tensor.device)


def _with_a_row_of(size: float, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    axis = next((axis for axis, length in enumerate(tensor.shape[:-1]) if length > 1), None)
    if axis is None or not tensor.is_floating_point():
        return tensor
    row = int(torch.randint(tensor.shape[axis], (1,), generator=generator))
    changed = tensor.clone()
    part = changed.select(axis, row)
    least = torch.finfo(tensor.dtype).smallest_normal * torch.finfo(tensor.dtype).eps
    part.copy_(torch.rand(part.shape, generator=generator) * max(size, least) if size else torch.zeros(()))
    return changed


def _flipped(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    flat, places = tensor.reshape(-1).clone(), _chosen(tensor, generator)
    flat[places] = (flat[places] == 0).to(tensor.dtype)
    return torch.empty_like(tensor).copy_(flat.view(tensor.shape))


def _extreme(tensor: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor:
    """A part of the elements: the lowest, the highest, and repetitions of one of the others."""
    flat, places = tensor.reshape(-1).clone(), _chosen(tensor, generator)
    flat[places[::3]], flat[places[1::3]], flat[places[2::3]] = role.low, role.high, flat[places[-1]].clone()
    flat = flat.sort().values if role.is_sorted else flat
    return torch.empty_like(tensor).copy_(flat.view(tensor.shape))


def _redrawn(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    value = constant_value(tensor)
    if value is not None:
        return renewed(tensor, value, generator)
    return tensor * (0.5 + torch.rand(tensor.shape, generator=generator)).to(tensor)
