# SPDX-License-Identifier: Apache-2.0
"""Environment variables of the processes that judges start."""

from __future__ import annotations

import os
from pathlib import Path

import verl_kernel
from verl_kernel.env.sandbox import gpu_isolation

_PACKAGE_ROOT = Path(verl_kernel.__file__).resolve().parents[1]
_KEPT = ("PATH", "TMPDIR", *gpu_isolation.GPU_VARIABLES)


def child_environment() -> dict[str, str]:
    """Return a small environment for a child: no secrets of the caller, this package importable, one thread."""
    inherited = {name: os.environ[name] for name in _KEPT if name in os.environ}
    paths = [str(_PACKAGE_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
