# SPDX-License-Identifier: Apache-2.0
"""Found by a zygote whose PYTHONPATH names this folder: its device becomes the pretended one of that name."""

import sys

if "verl_kernel.env.zygote" in sys.orig_argv:
    from verl_kernel.env import devices

    def pretended(name, probe=True):
        if name == "cuda":
            from pretend_cuda import PretendCuda

            return PretendCuda()
        from pretend_gpu import PretendGpu

        return PretendGpu()

    devices.resolve_device = pretended
