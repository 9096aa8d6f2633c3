# SPDX-License-Identifier: Apache-2.0
"""What Triton asks about the device, answered where there is no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget


class TritonDriver:
    """A driver of one device, which stands for a GPU.

    Args:
        target: the GPU to compile for.
        properties: of the device, by Triton's names.
        torch_device: where tensors seem to be.
        utils: further functions that Triton's code for launches calls.
    """

    def __init__(
        self, target: GPUTarget, properties: Mapping[str, int], torch_device: str = "cuda:0", **utils: Any
    ) -> None:
        self._target, self._torch_device = target, torch_device
        self.utils = SimpleNamespace(get_device_properties=lambda device=0: dict(properties), **utils)

    @classmethod
    def is_active(cls) -> bool:
        """Return False: such a driver is set explicitly, never detected."""
        return False

    def get_current_target(self) -> GPUTarget:
        """Return the GPU to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """Return 0, the only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing, as there is one device only."""

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Return the compute capability of the target."""
        return divmod(int(self._target.arch), 10)

    def get_current_stream(self, device: int = 0) -> int:
        """Return 0, as there are no streams."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Return the device of the tensors."""
        import torch  # some processes have none

        return torch.device(self._torch_device)
