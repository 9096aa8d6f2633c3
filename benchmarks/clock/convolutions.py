# SPDX-License-Identifier: Apache-2.0
"""What published times leave for a convolution that several programs have, less the predicted rest of each program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.table import Table

from benchmarks.clock.references import Prediction
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms
from verl_kernel.env.trace import TraceEvent

_NAME = "aten::convolution"


def shared_convolutions(found: Iterable[Prediction]) -> dict[TraceEvent, list[Prediction]]:
    """The convolutions that at least two programs run, equal in all that the clock knows of them."""
    programs: defaultdict[TraceEvent, list[Prediction]] = defaultdict(list)
    for one in found:
        some = [event for event in one.events if event.name == _NAME]
        if len(some) == 1:
            programs[TraceEvent("op", _NAME, steps=some[0].steps)].append(one)
    return {event: some for event, some in programs.items() if len(some) > 1}


def left_ms(one: Prediction, ms: float) -> float:
    """The milliseconds that a program's published time leaves for an op that is predicted to take `ms`."""
    return one.theirs - (one.ours - ms)


def spread(found: Sequence[Prediction], machine: MachineModel) -> Table:
    """By convolution its predicted milliseconds, and those that each program's published time leaves for it."""
    table = Table(
        "programs", "predicted ms", "left by the published times", title="one convolution in several programs"
    )
    for event, some in shared_convolutions(found).items():
        ms = event_ms(event, machine)
        names = ", ".join(f"{one.program.level[-1]}/{one.program.number}" for one in some)
        table.add_row(names, f"{ms:.2f}", ", ".join(f"{left_ms(one, ms):.2f}" for one in some))
    return table
