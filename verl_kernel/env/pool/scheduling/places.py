# SPDX-License-Identifier: Apache-2.0
"""The judges behind a turnstile, and which of them may be handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Judge = TypeVar("Judge")


@dataclass(eq=False)
class Place(Generic[Judge]):
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


def rotation(places: Sequence[Place[Judge]]) -> list[Place[Judge]]:
    """The places in rotation; those in quarantine too where their model has nobody else."""
    served = {place.model for place in places if place.in_rotation}
    return [place for place in places if place.in_rotation or (place.available and place.model not in served)]


def present_models(places: Sequence[Place[Judge]]) -> set[str]:
    """Models with a judge that can serve or still does."""
    return {place.model for place in places if place.available or (place.drained and place.busy and not place.down)}
