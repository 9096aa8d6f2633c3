# SPDX-License-Identifier: Apache-2.0
"""State of the launches of this process, which run one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from verl_kernel.env.devices.cpu import execution_link
from verl_kernel.env.devices.cpu.execution_link import Granted, Range, covered, tensors_among
from verl_kernel.env.emulator.flow.origins import Kind
from verl_kernel.env.trace import TraceEvent

if TYPE_CHECKING:
    from verl_kernel.env.devices.cpu.execution_link import Link


class LaunchState:
    """The state of a process's launches."""

    def __init__(self) -> None:
        self.link: Link | None = None
        """Link to the process that executes launches."""
        self.events: list[TraceEvent] | None = None
        """List to which launches are recorded."""
        self.is_tried = False
        """Whether an autotuner tries configurations; its launches are not part of the forward."""
        self.changed_again: set[str] = set()
        """Parameters whose tensors a tried launch changes each time that it is repeated."""
        self.suppressed = False
        """Whether launches do nothing and are not recorded."""
        self.spent_ns = 0
        """Processor time of all launches and recorded ops so far."""
        self.tensors: list[torch.Tensor] = []
        """Tensors among the launch's arguments, and tensors to which tables of addresses among them point."""
        self.has_data = True
        """Whether tensors have data; without data, tables of addresses are not searched."""
        self.tables: list[Range] = []
        """Memory of the tensors that may hold addresses."""
        self.ranges: list[Range] = []
        """Memory that the launch may touch, one range for each of `tensors`."""
        self.views: dict[Range, Range] = {}
        """For each of `ranges`, the part that the tensors among the arguments cover."""
        self._kept_kinds: tuple[Kind, ...] | None = None
        self._only: frozenset[int] | None = None
        self._number = -1
        self.granted = Granted()
        """Memory that launches may touch."""

    def begin_forward(self) -> None:
        """Begin a forward: count launches from 0 again."""
        self._number = -1

    def begin_launch(self, arguments: Iterable[Any]) -> list[Kind] | None:
        """Begin a launch: find the tensors that its arguments, and tables of addresses among them, let it touch.

        Returns:
            The kinds of stores that happen; None for all.
        """
        self._number += not self.is_tried
        self.tensors = tensors_among(arguments)
        self.tables = execution_link.tables(self.tensors) if self.has_data else []
        argument_count = len(self.tensors)
        self.tensors += execution_link.reached(self.tables)
        self.ranges = [self.granted.memory(tensor) for tensor in self.tensors]
        whole = (
            self.ranges[argument_count:] if self.has_data else self.ranges
        )  # a word in a table points anywhere in a tensor
        self.views = covered(self.tensors[:argument_count], self.ranges[:argument_count]) | {
            piece: piece for piece in whole
        }
        is_concerned = self._only is None or self._number in self._only
        return None if self._kept_kinds is None or self.is_tried or not is_concerned else [*self._kept_kinds]

    @contextmanager
    def keeping(self, kinds: Sequence[Kind], only: Sequence[int] | None) -> Iterator[None]:
        """Suppress every store not of `kinds`, in all launches or only in those of the numbers `only`."""
        self._kept_kinds, self._only = tuple(kinds), None if only is None else frozenset(only)
        self.suppressed = not kinds and only is None
        try:
            yield
        finally:
            self._kept_kinds, self._only, self.suppressed = None, None, False

    @contextmanager
    def trying(self) -> Iterator[list[TraceEvent]]:
        """Collect launches in the context separately, and run them even during an ablation."""
        outer = self.events, self.suppressed, self.is_tried
        events: list[TraceEvent] = []
        self.events, self.suppressed, self.is_tried = events, False, True
        try:
            yield events
        finally:
            self.events, self.suppressed, self.is_tried = outer


STATE = LaunchState()
"""Launch state of this process."""
