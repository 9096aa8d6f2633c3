# SPDX-License-Identifier: Apache-2.0
"""Grants of a device's runners, beyond reading Python's files and filling their own directory.

A device returns its profile (`DeviceBackend.isolation`) and `jail` applies it; everything it does not grant is refused.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass

_GROUP_ACCESS, _ANYBODYS_ACCESS = 0o060, 0o006


@dataclass(frozen=True)
class IsolationProfile:
    """Grants of one device to its runners; by default none."""

    nodes: tuple[str, ...] = ()
    """Patterns of device nodes that may be opened for reading and writing."""
    readable: tuple[str, ...] = ()
    """Patterns of further files and folders that may be read."""
    may_start_programs: bool = False
    """Whether it may start threads, processes and programs, and create memory outside an address space (memfd)."""
    may_listen: bool = False
    """Whether it may bind a unix socket and listen on it; connecting and accepting stay refused."""
    may_name_threads: bool = False
    """Whether it may write files in /proc/self/task."""
    limits_addresses: bool = True
    """Whether the address space is limited to the memory that the judge grants."""
    may_judge: bool = False
    """Whether it may start, jail and end processes of its own, as the judge of a reference that is not trusted does;
    goes with `may_start_programs`."""
    file_bytes: int = 1 << 20
    open_files: int = 64
    processes: int | None = None
    """Processes and threads that its user may have; None for no limit of its own."""


def existing(patterns: Sequence[str]) -> list[str]:
    """Return the existing paths that match one of the patterns, without broken links."""
    return sorted({path for pattern in patterns for path in glob.glob(pattern) if os.path.exists(path)})


def groups(nodes: Sequence[str]) -> list[int]:
    """Return the groups that a process needs in order to open these device nodes (patterns); never root's."""
    stats = [os.stat(path) for path in existing(nodes)]
    return sorted({node.st_gid for node in stats if node.st_gid and _needs_group(node.st_mode)})


def _needs_group(mode: int) -> bool:
    return mode & _GROUP_ACCESS == _GROUP_ACCESS and mode & _ANYBODYS_ACCESS != _ANYBODYS_ACCESS
