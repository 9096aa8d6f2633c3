# SPDX-License-Identifier: Apache-2.0
"""How often an evaluation that failed for reasons of ours is done again."""

from __future__ import annotations

from dataclasses import dataclass

ATTEMPTS = 2
"""Attempts that may fail with the judge still there, or with somebody who starts it again."""
_LOSSES = 3
"""Further attempts for what went down with its judge: a node takes its judges along one after another."""


@dataclass
class Tries:
    """The attempts at one evaluation."""

    made: int = 0
    lost: int = 0
    """Those that ended with the judge's actor or node."""

    @property
    def left(self) -> bool:
        """Whether there is another one."""
        return self.made - self.lost < ATTEMPTS and self.lost <= _LOSSES
