# SPDX-License-Identifier: Apache-2.0
"""What a launch asks of the second-level cache, of one buffer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """Reads, or writes, of a buffer by a launch: bytes of sectors that the first-level cache had not."""

    total: int = 0
    own: int = 0
    """The same, but what a block accesses again counts once."""
    low: int = 0
    """Address of the first sector, and the first byte behind the last one."""
    high: int = 0

    @property
    def extent(self) -> int:
        """Bytes between the first and the last one that was accessed."""
        return self.high - self.low

    @property
    def once(self) -> int:
        """Bytes from device memory if the second level keeps all that is accessed again."""
        return min(self.own, self.extent)

    @property
    def repeated(self) -> int:
        """Further bytes if it does not keep what a block accesses again."""
        return round(self.once * (self.total / self.own - 1.0)) if self.own else 0

    @property
    def is_shared(self) -> bool:
        """Whether blocks access the same bytes."""
        return 2 * self.own > 3 * self.extent
