# SPDX-License-Identifier: Apache-2.0
"""The CUDA device with its jail, its environment and Triton's compiler, on a machine without a driver: tensors stay on
the host, nothing is launched or timed. Its nodes are files in the folder that PRETEND_DEV names.
"""

import os
from contextlib import contextmanager

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.devices.cuda.device import CudaDevice
from verl_kernel.env.sandbox import gpu_isolation


class PretendCuda(CudaDevice):
    to_device, place, poison = DeviceBackend.to_device, DeviceBackend.place, DeviceBackend.poison
    inputs_here, synchronize, shared = DeviceBackend.inputs_here, DeviceBackend.synchronize, DeviceBackend.shared
    enter = DeviceBackend.enter

    def zygote_env(self):
        told = {name: os.environ[name] for name in ("PRETEND_DEV", gpu_isolation.MINOR) if name in os.environ}
        return {**super().zygote_env(), **told}

    def isolation(self):
        return gpu_isolation.profile(os.environ, dev=os.environ["PRETEND_DEV"])

    def preload(self):
        import dill  # noqa: F401  as verl's processes do; it fixes the directory for temporary files
        import triton.backends.nvidia.driver as nvidia

        nvidia.CudaUtils = lambda: None
        super().preload()

    def is_crash(self, exc):
        return False

    @contextmanager
    def record(self):
        yield []
