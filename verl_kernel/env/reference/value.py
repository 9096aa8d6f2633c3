# SPDX-License-Identifier: Apache-2.0
"""A program's arguments or outputs: nested data, and how two such values compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from verl_kernel.env.comparison.compare import Agreement, compare
from verl_kernel.env.eight_bits import widened
from verl_kernel.env.ipc.shared_memory import flatten, unflatten
from verl_kernel.env.weights import constant_value

if TYPE_CHECKING:
    from verl_kernel.env.devices.base import DeviceBackend


@dataclass(frozen=True)
class Value:
    """Nested data as a JSON tree and the tensors its leaves name."""

    tree: Any
    tensors: list[torch.Tensor]

    @classmethod
    def of(cls, data: Any) -> Value:
        """Flatten `data`; raises TypeError for a leaf that cannot cross processes."""
        tensors: list[torch.Tensor] = []
        tree = flatten(data, tensors)
        return cls(tree, [tensor.detach() for tensor in tensors])

    def on(self, device: DeviceBackend) -> Value:
        """The same on a device."""
        return Value(self.tree, [device.to_device(tensor) for tensor in self.tensors])

    def copy(self) -> Value:
        """The same with tensors of its own."""
        return Value(self.tree, [tensor.clone() for tensor in self.tensors])

    def unflattened(self) -> Any:
        """The data again; it shares the tensors."""
        return unflatten(self.tree, self.tensors)

    def build(self) -> Any:
        """The data again, with copies of its tensors."""
        return self.copy().unflattened()

    @property
    def shapes(self) -> list[torch.Size]:
        """Of its tensors."""
        return [tensor.shape for tensor in self.tensors]

    @property
    def nbytes(self) -> int:
        """Size of its tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    @property
    def is_finite(self) -> bool:
        """Whether its tensors hold neither NaN nor infinity."""
        return all(bool(torch.isfinite(widened(tensor)).all()) for tensor in self.tensors)

    @property
    def is_floating(self) -> bool:
        """Whether all of its tensors are."""
        return all(tensor.is_floating_point() for tensor in self.tensors)

    @property
    def is_constant(self) -> bool:
        """Whether each of its tensors holds one number."""
        return all(constant_value(tensor.float()) is not None for tensor in self.tensors)

    def agrees(self, other: Value, least: float | None = None) -> bool:
        """Whether the other one would be right where this one is expected (`compare`)."""
        return all(agreement.ok for agreement in self._agreements(other, least))

    def nearly_agrees(self, other: Value) -> bool:
        """Whether at most a few elements of each tensor disagree: so few are given room when a program is judged."""
        return all(agreement.ok or agreement.has_few for agreement in self._agreements(other))

    def _agreements(self, other: Value, least: float | None = None) -> list[Agreement]:
        if self.tree != other.tree or self.shapes != other.shapes:
            return [Agreement(ok=False)]
        return [compare(a, b, least=least) for a, b in zip(self.tensors, other.tensors, strict=True)]

    def is_worse(self, usual: Value, may_be_constant: bool = False) -> bool:
        """Whether it has lost what the usual one has: finite numbers, more than one of them, its number of parts."""
        if len(self.tensors) != len(usual.tensors) or (usual.is_finite and not self.is_finite):
            return True
        return self.is_constant and not (usual.is_constant or may_be_constant)

    def is_same_constant(self, other: Value) -> bool:
        """Whether two values of different sizes hold one number, the same."""
        pairs = list(zip(self.tensors, other.tensors, strict=False))
        values = [(constant_value(a.float()), constant_value(b.float())) for a, b in pairs]
        return self.shapes != other.shapes and all(a is not None and a == b for a, b in values)
