# SPDX-License-Identifier: Apache-2.0
"""Found by a Python whose PYTHONPATH names this folder: in zygotes, judges' processes and sections of bench_gpu.py the
device becomes the pretended one of that name."""

import sys

CONCERNED = {"verl_kernel.env.runner.zygote", "verl_kernel.env.pool.judge_worker", "benchmarks.gpu.section"}

if CONCERNED & set(sys.orig_argv):
    from verl_kernel.env import backends

    def pretended(name, probe=True):  # imports late: they import triton, for which a judge's process is not ready
        if name == "cuda":
            from pretend_cuda import PretendCuda

            return backends.Backend(PretendCuda(), None)
        from pretend_gpu import backend

        return backend()

    backends.resolve_backend = pretended
