# SPDX-License-Identifier: Apache-2.0
"""A runner's environment, and what it must forget of the zygote that it was forked from.

Python, torch and Triton ask the environment for their directories when they need one, so new variables are enough; what
cached an answer in the zygote is reset here, each with its reason.
"""

from __future__ import annotations

import os
import tempfile

_OWN = ("HOME", "TMPDIR", "TRITON_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""TRITON_HOME because Triton takes the home it was imported under where that is unset."""


def environment(base: dict[str, str], scratch: str) -> dict[str, str]:
    """The runner's whole environment: the device's variables and private directories."""
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **base, **dict.fromkeys(_OWN, scratch)}


def settle(base: dict[str, str], scratch: str) -> None:
    """Make this process's environment that of a runner with the directory `scratch`."""
    private = environment(base, scratch)
    os.environ.clear()
    os.environ.update(private)
    tempfile.tempdir = None  # tempfile cached the judge's directory if anything made a temporary file in the zygote
