# SPDX-License-Identifier: Apache-2.0
"""Calls of the C library that Python has no function for."""

from __future__ import annotations

import ctypes

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38


def prctl(option: int, value: int, argument: bytes | None = None) -> None:
    """Set one attribute of this process (raises OSError)."""
    if LIBC.prctl(option, ctypes.c_ulong(value), argument, None, None) != 0:
        raise refusal(f"prctl {option}")


def refusal(call: str) -> OSError:
    """The error of the call that has just failed."""
    return OSError(ctypes.get_errno(), f"{call} is refused")
