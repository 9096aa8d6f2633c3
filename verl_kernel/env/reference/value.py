# SPDX-License-Identifier: Apache-2.0
"""A program's arguments or outputs as nested data, and comparisons of two such values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from verl_kernel.env.comparison.compare import Agreement, compare
from verl_kernel.env.comparison.tf32_tolerance import real
from verl_kernel.env.eight_bits import widened
from verl_kernel.env.ipc.shared_memory import flatten, unflatten
from verl_kernel.env.weights import constant_value

if TYPE_CHECKING:
    from verl_kernel.env.devices.base import DeviceBackend

_VANISHED = 2.0**-48
"""Outputs all below this part of the largest usual one have vanished: the square of float32's last digit."""


@dataclass(frozen=True)
class Value:
    """Nested data as a JSON tree and the tensors to which its leaves refer."""

    tree: Any
    tensors: list[torch.Tensor]

    @classmethod
    def of(cls, data: Any) -> Value:
        """Flatten `data`; raises TypeError for a leaf that cannot cross processes."""
        tensors: list[torch.Tensor] = []
        tree = flatten(data, tensors)
        return cls(tree, [tensor.detach() for tensor in tensors])

    def on(self, device: DeviceBackend) -> Value:
        """Return the value with its tensors on a device."""
        return Value(self.tree, [device.to_device(tensor) for tensor in self.tensors])

    def copy(self) -> Value:
        """Return the value with copies of its tensors."""
        return Value(self.tree, [tensor.clone() for tensor in self.tensors])

    def unflattened(self) -> Any:
        """Rebuild the nested data, which shares the tensors."""
        return unflatten(self.tree, self.tensors)

    def build(self) -> Any:
        """Rebuild the nested data with copies of the tensors."""
        return self.copy().unflattened()

    @property
    def shapes(self) -> list[torch.Size]:
        """Shapes of the tensors."""
        return [tensor.shape for tensor in self.tensors]

    @property
    def nbytes(self) -> int:
        """Size of the tensors in bytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    @property
    def is_finite(self) -> bool:
        """Whether its tensors hold neither NaN nor infinity."""
        return all(bool(torch.isfinite(widened(tensor)).all()) for tensor in self.tensors)

    @property
    def is_floating(self) -> bool:
        """Whether all of its tensors are floating."""
        return all(tensor.is_floating_point() for tensor in self.tensors)

    @property
    def is_constant(self) -> bool:
        """Whether each of its tensors holds one number."""
        return all(constant_value(real(tensor).float()) is not None for tensor in self.tensors)

    def agrees(self, actual: Value, smallest_scale: float | None = None) -> bool:
        """Whether `other` would be accepted where this value is expected (`compare`)."""
        return all(agreement.ok for agreement in self._agreements(actual, smallest_scale))

    def nearly_agrees(self, actual: Value) -> bool:
        """Whether at most a few elements of each tensor disagree: a judge computes allowances for so few."""
        return all(agreement.ok or agreement.has_few for agreement in self._agreements(actual))

    def is_apart(self, actual: Value) -> bool:
        """Whether some floating output is apart from another by a tenth of its largest number."""
        if self.tree != actual.tree or self.shapes != actual.shapes:
            return True
        pairs = [
            (widened(a), widened(b)) for a, b in zip(self.tensors, actual.tensors, strict=True) if a.is_floating_point()
        ]
        return any(bool(((a - b).abs() > 0.1 * a.abs().max()).any()) for a, b in pairs if a.numel())

    def _agreements(self, actual: Value, smallest_scale: float | None = None) -> list[Agreement]:
        if self.tree != actual.tree or self.shapes != actual.shapes:
            return [Agreement(ok=False)]
        return [compare(a, b, smallest_scale=smallest_scale) for a, b in zip(self.tensors, actual.tensors, strict=True)]

    def is_worse(self, usual: Value, may_be_constant: bool = False) -> bool:
        """Whether this value is degenerate compared with `usual`: not finite, vanished, constant, or of other count."""
        # A constant output tells nothing about a program: any input would do.
        if len(self.tensors) != len(usual.tensors) or (usual.is_finite and not self.is_finite):
            return True
        # Where all that is left of 1 + x is what rounds to nothing in it, right programs return zeros.
        if 0 < self._largest() < _VANISHED * usual._largest():
            return True
        return self.is_constant and not (usual.is_constant or may_be_constant)

    def _largest(self) -> float:
        """Return the largest finite magnitude of its floating tensors."""
        floats = [widened(real(tensor)) for tensor in self.tensors if tensor.is_floating_point() and tensor.numel()]
        return max((float(tensor.nan_to_num(0.0, 0.0, 0.0).abs().max()) for tensor in floats), default=0.0)

    def is_same_constant(self, actual: Value) -> bool:
        """Whether two values of different sizes hold the same constant."""
        pairs = list(zip(self.tensors, actual.tensors, strict=False))
        values = [(constant_value(real(a).float()), constant_value(real(b).float())) for a, b in pairs]
        # Values of one shape are compared by `agrees`.
        return self.shapes != actual.shapes and all(a is not None and a == b for a, b in values)
