# SPDX-License-Identifier: Apache-2.0
"""Tells the programs that are judged (references, candidates) from the libraries they call."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

import torch

import verl_kernel

_LIBRARIES = [Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
_ROOTS = tuple(f"{path}/" for path in (*_LIBRARIES, Path(torch.__file__).parents[1], Path(verl_kernel.__file__).parent))


@lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    """Whether code of this file belongs to Python, an installed package or this package."""
    return filename.startswith(("<frozen", *_ROOTS))


def program_asks(depth: int = 2) -> bool:
    """Whether the function `depth` calls up from here belongs to a program."""
    return not is_library(sys._getframe(depth).f_code.co_filename)
