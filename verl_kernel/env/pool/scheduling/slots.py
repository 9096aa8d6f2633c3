# SPDX-License-Identifier: Apache-2.0
"""The judges behind a scheduler, and which of them may be handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Judge = TypeVar("Judge")


@dataclass(eq=False)
class JudgeSlot(Generic[Judge]):
    """One judge and what keeps it from work."""

    judge: Judge
    model: str = ""
    busy: bool = False
    down: bool = False
    drained: bool = False
    benched: asyncio.TimerHandle | None = None
    strikes: int = 0
    bans: int = 0

    @property
    def available(self) -> bool:
        """Whether it can serve, in quarantine or not."""
        return not self.down and not self.drained

    @property
    def in_rotation(self) -> bool:
        """Whether it is handed out."""
        return self.available and self.benched is None

    @property
    def state(self) -> str:
        """One word for a table."""
        if self.down:
            return "down"
        if self.drained:
            return "draining" if self.busy else "drained"
        return "busy" if self.busy else "free" if self.benched is None else "quarantined"


def rotation(slots: Sequence[JudgeSlot[Judge]]) -> list[JudgeSlot[Judge]]:
    """The slots in rotation; those in quarantine too where their model has nobody else."""
    served = {slot.model for slot in slots if slot.in_rotation}
    return [slot for slot in slots if slot.in_rotation or (slot.available and slot.model not in served)]


def present_models(slots: Sequence[JudgeSlot[Judge]]) -> set[str]:
    """Models with a judge that can serve or still does."""
    return {slot.model for slot in slots if slot.available or (slot.drained and slot.busy and not slot.down)}
