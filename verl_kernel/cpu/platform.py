# SPDX-License-Identifier: Apache-2.0
"""verl's platform contract (`verl.plugin.platform.PlatformBase`) for a machine without an accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

from verl_kernel.cpu import device
from verl_kernel.errors import RegistrationError


class PlatformCPU(PlatformBase):  # type: ignore[misc]
    """The CPU as verl's device; Ray counts it as logical GPUs so that verl's pools work unchanged."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")

    @property
    def device_module(self) -> ModuleType:
        """Return the `torch.<device>` namespace."""
        return device

    def is_available(self) -> bool:
        """Return True."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Return False: the platform is chosen by name, never detected."""
        return False

    def current_device(self) -> str:
        """Return the device's name: torch would read an index as that of an accelerator."""
        return "cpu"

    def device_count(self) -> int:
        """Return 1."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing: there is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: CPU operations are synchronous."""

    def manual_seed(self, seed: int) -> None:
        """Seed the generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generator."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing: the CPU allocator has no settings."""

    def empty_cache(self) -> None:
        """Do nothing: the CPU allocator keeps no cache."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        """Return no capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """Return `gloo`."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Return the variable Ray sets for its logical GPU."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """Mark nothing."""
        yield

    def profiler_start(self) -> None:
        """Do nothing: there is no device profiler."""

    def profiler_stop(self) -> None:
        """Do nothing: there is no device profiler."""

    def ray_resource_name(self) -> str:
        """Return `GPU`: verl's resource pools ask for it, Ray is told to have some (`ray_init.num_gpus`)."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Return no variables."""
        return []

    def is_ipc_supported(self) -> bool:
        """Return False: weights travel through shared memory."""
        return False

    def cudart(self) -> None:
        """Return None: there is no CUDA runtime."""


def register(name: str) -> None:
    """Enter the platform in verl's registry.

    Raises:
        RegistrationError: verl or another plugin already holds a platform of this name.
    """
    holder = PlatformRegistry.get(name)
    if holder is None:
        PlatformRegistry.register(platform=name)(PlatformCPU)
    elif holder is not PlatformCPU:
        raise RegistrationError(
            f"verl platform {name!r} is already {holder.__module__}.{holder.__qualname__}, so verl_kernel does not "
            f"register its own; unset VERL_PLATFORM or remove the other plugin"
        )
