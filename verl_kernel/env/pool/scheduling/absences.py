# SPDX-License-Identifier: Apache-2.0
"""Which GPU models of a pool have been without a judge for too long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Absences:
    """Used within one event loop.

    Args:
        limit_s: seconds without a judge after which a model is lost.
        on_loss: called when one is.
    """

    def __init__(self, limit_s: float, on_loss: Callable[[], None]) -> None:
        self._limit_s, self._on_loss = limit_s, on_loss
        self._known: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.lost: set[str] = set()
        """Models that have had judges, and have none now and for longer than the limit."""

    def note(self, present: set[str]) -> None:
        """Take down which models have a judge now."""
        for model in present & self._timers.keys():
            self._timers.pop(model).cancel()
        for model in self._known - present - self._timers.keys() - self.lost:
            self._timers[model] = asyncio.get_running_loop().call_later(self._limit_s, self._lose, model)
        self.lost -= present
        self._known |= present

    def _lose(self, model: str) -> None:
        del self._timers[model]
        self.lost.add(model)
        others = sorted(self._known - self.lost)
        if others:
            _LOG.warning(
                "no judge of %s for %g s: its prompts go to %s, and their results say so",
                model, self._limit_s, " or ".join(others),
            )  # fmt: skip
        self._on_loss()
