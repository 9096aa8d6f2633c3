# SPDX-License-Identifier: Apache-2.0
"""The supervisor of a pool's judges: starts them, restarts failed ones, and keeps drained ones out of rotation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Generic

from verl_kernel.env.pool.scheduling.judges import Drains, Handle, JudgeLost
from verl_kernel.env.pool.scheduling.scheduler import JudgeScheduler
from verl_kernel.errors import ConfigError, EnvironmentNotReady, InfraError

_LOG = logging.getLogger(__name__)
_REVIVAL_S = 1.0
"""Pause after the first failed start; each further pause is twice as long, up to `_LONGEST_REVIVAL_S`."""
_LONGEST_REVIVAL_S = 60.0
_RESTART_S = 16.0
"""While pauses are shorter than this, a lost judge may still be restarting and does not count as failing."""
_WATCH_S = 5.0
"""Seconds between two checks of a drained judge."""


class JudgeSupervisor(Generic[Handle]):
    """The supervisor that starts judges and announces them to the scheduler, within one event loop.

    Args:
        judges: handles of judges that have not been started.
        scheduler: assigns them to requests.
    """

    def __init__(self, judges: Sequence[Handle], scheduler: JudgeScheduler[Handle]) -> None:
        self._judges, self._scheduler = judges, scheduler
        self._drains = Drains()
        self._refusals: dict[int, Exception] = {}
        self._starts: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._watched: set[int] = set()
        self._failing: set[int] = set()
        self._failures: dict[int, Exception] = {}
        self._model = ""

    def start(self) -> None:
        """Start the judges without waiting for them; later calls do nothing."""
        if not self._starts:
            self._starts = [asyncio.ensure_future(self._bring_up(judge)) for judge in self._judges]

    async def ready(self) -> None:
        """Wait until all judges have started.

        Raises:
            EnvironmentNotReady: one of them cannot start.
        """
        self.start()
        await asyncio.shield(asyncio.gather(*self._starts))
        if self._refusals:
            raise next(iter(self._refusals.values()))

    async def one_ready(self) -> None:
        """Wait until a judge has started.

        Raises:
            EnvironmentNotReady: every judge has been refused; the first one's words.
            InfraError: none starts, and some may later; the first one's words.
        """
        self.start()
        waiting = set(self._starts)
        while waiting:
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if {self._starts.index(start) for start in ended} - self._refusals.keys() - self._failures.keys():
                return
        raise next(iter({**self._failures, **self._refusals}.values()))

    def repair(self, judge: Handle) -> None:
        """Take a judge that failed out of rotation until it answers again."""
        self._scheduler.down(judge)
        self._in_background(self._bring_up(judge))

    def ask_neighbours(self, judge: Handle) -> None:
        """Check the idle judges on a lost judge's node before they get work: the whole node may be lost."""
        node = judge.describe().node
        neighbours = [
            neighbour for neighbour in self._judges if neighbour is not judge and neighbour.describe().node == node
        ]
        for neighbour in neighbours if node else ():
            if self._scheduler.state(neighbour) in ("free", "quarantined"):
                self.repair(neighbour)

    def drain(self, nodes: Collection[str], numbers: Collection[int], on: bool) -> list[int]:
        """Drain all judges on these nodes, and these judges, or undo that; return the numbers of the judges."""
        self._drains.change(nodes, numbers, on)
        for judge in self._judges:
            self._apply_drain(judge)
        nodes_of_judges = enumerate(judge.describe().node for judge in self._judges)
        return [number for number, node in nodes_of_judges if number in numbers or node in nodes]

    def close(self) -> None:
        """Stop supervising the judges."""
        for task in [*self._starts, *self._background]:
            task.cancel()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _bring_up(self, judge: Handle) -> None:
        """Start a judge, with growing pauses between tries, and put it into rotation once it answers."""
        number, pause = self._judges.index(judge), _REVIVAL_S
        while True:
            try:
                await judge.revive()
                self._check_model(judge.describe().model)
                self._failures.pop(number, None)
                break
            except (EnvironmentNotReady, ConfigError) as exc:
                self._refuse(judge, exc)
                return
            except InfraError as exc:
                _LOG.warning("judge %d does not start, next try in %g s: %s", number, pause, exc)
                self._scheduler.down(judge)
                self._failures[number] = exc
                if pause >= _RESTART_S or not isinstance(exc, JudgeLost):
                    self._failing.add(number)
            # If no judge works, put this one into rotation anyway: requests then fail with the reason and do not wait
            # for ever.
            if self._none_left():
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_REVIVAL_S)
        self._refusals.pop(number, None)
        self._failing.discard(number)
        self._apply_drain(judge)
        self._scheduler.up(judge)

    def _check_model(self, model: str) -> None:
        """Refuse a judge on another GPU model than the first one's: times of two models cannot be compared."""
        self._model = self._model or model
        if model != self._model:
            raise EnvironmentNotReady(
                f"its GPU is {model} and the pool's is {self._model}, and times of two models cannot be compared: name "
                'one model in kernelgym.judge_resources, as in {"accelerator_type:H100": 0.001}'
            )

    def _none_left(self) -> bool:
        """Tell whether every judge keeps failing or has been refused."""
        return len(self._failing | self._refusals.keys()) == len(self._judges)

    def _refuse(self, judge: Handle, reason: Exception) -> None:
        number = self._judges.index(judge)
        _LOG.error("judge %d cannot work: %s", number, reason)
        self._scheduler.down(judge)
        self._refusals[number] = reason
        self._failing.discard(number)
        if len(self._refusals) == len(self._judges):
            self._scheduler.refuse(reason)

    def _apply_drain(self, judge: Handle) -> None:
        """Drain or resume a judge according to its number and its present node.

        A judge of a drained node that Ray restarts on another node serves again.
        """
        number = self._judges.index(judge)
        drained = self._drains.cover(number, judge.describe().node)
        if drained != self._scheduler.is_drained(judge):
            self._scheduler.drain(judge, drained)
        if drained and number not in self._watched:
            self._watched.add(number)
            self._in_background(self._watch(judge))

    async def _watch(self, judge: Handle) -> None:
        """Check a drained judge from time to time, since no request would show that it was lost or restarted."""
        number = self._judges.index(judge)
        while self._scheduler.is_drained(judge) and number not in self._refusals:
            await asyncio.sleep(_WATCH_S)
            if self._scheduler.state(judge) == "drained":
                await self._bring_up(judge)
        self._watched.discard(number)
