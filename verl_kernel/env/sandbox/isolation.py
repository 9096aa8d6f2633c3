# SPDX-License-Identifier: Apache-2.0
"""What the runners of one device may do, beyond reading Python's files and filling their own directory.

A device hands out its profile (`DeviceBackend.isolation`) and `jail` applies it; what it does not grant is refused.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass

_GROUP_ACCESS, _ANYBODYS_ACCESS = 0o060, 0o006


@dataclass(frozen=True)
class IsolationProfile:
    """What one device grants its runners; by default nothing."""

    nodes: tuple[str, ...] = ()
    """Patterns of device nodes that may be opened for reading and writing."""
    readable: tuple[str, ...] = ()
    """Patterns of further files and folders that may be read."""
    may_start_programs: bool = False
    """Threads, processes, programs, and memory that lies in no address space (memfd)."""
    may_listen: bool = False
    """A unix socket of its own, bound and listened on; connecting and accepting stay refused."""
    may_name_threads: bool = False
    """Writing what lies in /proc/self/task."""
    limits_addresses: bool = True
    """Whether the address space is limited to the memory that the judge grants."""
    file_bytes: int = 1 << 20
    open_files: int = 64


def existing(patterns: Sequence[str]) -> list[str]:
    """The paths of this machine that match one of the patterns; links to nowhere do not."""
    return sorted({path for pattern in patterns for path in glob.glob(pattern) if os.path.exists(path)})


def groups(nodes: Sequence[str]) -> list[int]:
    """The groups without which these device nodes (patterns) cannot be opened; never root's."""
    found = [os.stat(path) for path in existing(nodes)]
    return sorted({node.st_gid for node in found if node.st_gid and _needs_group(node.st_mode)})


def _needs_group(mode: int) -> bool:
    return mode & _GROUP_ACCESS == _GROUP_ACCESS and mode & _ANYBODYS_ACCESS != _ANYBODYS_ACCESS
