# SPDX-License-Identifier: Apache-2.0
"""What this process knows of its launches, one of which runs at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from verl_kernel.env.devices.cpu import link
from verl_kernel.env.devices.cpu.link import Granted, Range, covered, tensors_among
from verl_kernel.env.executor.flow.origins import Kind
from verl_kernel.env.trace import TraceEvent

if TYPE_CHECKING:
    from verl_kernel.env.devices.cpu.link import Link


class LaunchState:
    """The state of a process's launches."""

    def __init__(self) -> None:
        self.link: Link | None = None
        """To the process that executes them."""
        self.events: list[TraceEvent] | None = None
        """Where launches are recorded."""
        self.is_tried = False
        """Whether launches are no part of the forward: an autotuner tries configurations."""
        self.suppressed = False
        """Whether launches do nothing, and leave no trace."""
        self.spent_ns = 0
        """Processor time of all launches and recorded ops so far."""
        self.tensors: list[torch.Tensor] = []
        """Those among the launch's arguments, and those that tables of addresses among them lead to."""
        self.has_data = True
        """Whether tensors have data; where they have none, no tables of addresses are looked for."""
        self.tables: list[Range] = []
        """The memory of those that may hold addresses."""
        self.ranges: list[Range] = []
        """The memory of each that the launch may touch."""
        self.views: dict[Range, Range] = {}
        """What the tensors among the arguments cover of it."""
        self._kept: tuple[Kind, ...] | None = None
        self._only: frozenset[int] | None = None
        self._number = -1
        self.granted = Granted()
        """Memory that launches may touch."""

    def begin_forward(self) -> None:
        """A forward begins: launches are counted from 0."""
        self._number = -1

    def begin_launch(self, arguments: Iterable[Any]) -> list[Kind] | None:
        """A launch begins, which may touch the memory of the tensors among its arguments and of those tables lead to.

        Returns:
            The kinds of its stores that happen; None for all.
        """
        self._number += not self.is_tried
        self.tensors = tensors_among(arguments)
        self.tables = link.tables(self.tensors) if self.has_data else []
        given = len(self.tensors)
        self.tensors += link.reached(self.tables)
        self.ranges = [self.granted.memory(tensor) for tensor in self.tensors]
        whole = self.ranges[given:] if self.has_data else self.ranges  # a table's word leads to any place of a tensor
        self.views = covered(self.tensors[:given], self.ranges[:given]) | {place: place for place in whole}
        is_concerned = self._only is None or self._number in self._only
        return None if self._kept is None or self.is_tried or not is_concerned else [*self._kept]

    @contextmanager
    def keeping(self, kinds: Sequence[Kind], only: Sequence[int] | None) -> Iterator[None]:
        """Leave out the stores of all other kinds, of all launches or of those of these numbers."""
        self._kept, self._only = tuple(kinds), None if only is None else frozenset(only)
        self.suppressed = not kinds and only is None
        try:
            yield
        finally:
            self._kept, self._only, self.suppressed = None, None, False

    @contextmanager
    def trying(self) -> Iterator[list[TraceEvent]]:
        """Launches inside are collected apart, and run in an ablation too."""
        outer = self.events, self.suppressed, self.is_tried
        events: list[TraceEvent] = []
        self.events, self.suppressed, self.is_tried = events, False, True
        try:
            yield events
        finally:
            self.events, self.suppressed, self.is_tried = outer


STATE = LaunchState()
"""This process's."""
