# SPDX-License-Identifier: Apache-2.0
"""Found by a Python whose PYTHONPATH names this folder: judges, zygotes and sections of bench_gpu.py that it starts get
the pretended device."""

import sys

_CONCERNED = ("verl_kernel.env.zygote", "verl_kernel.env.worker", "benchmarks.gpu.section")


def _pretended(name, probe=True):
    from pretend_gpu import PretendGpu  # imports triton, for which a judge has to be ready

    return PretendGpu()


if set(_CONCERNED) & set(sys.orig_argv):
    from verl_kernel.env import devices

    devices.resolve_device = _pretended
