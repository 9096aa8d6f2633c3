# SPDX-License-Identifier: Apache-2.0
"""Launches with an account, written by hand."""

from verl_kernel.env.clocks.forward.launches import OwnLaunch, explanations, join
from verl_kernel.env.trace import Step, TraceEvent

MEGABYTE = 1 << 20
FILE = "candidate.py"


def launch(name, touched, **step):
    """Return a launch of 1056 blocks that touches (number, read, written) bytes of tensors."""
    moved = sum(read + written for _, read, written in touched)
    known = {"bytes": moved, "l2_bytes": moved, "blocks": 1056, "in_flight": 1 << 14, "block_ns": 1000} | step
    return TraceEvent(
        "launch", name, (1056, 1, 1), steps=(Step(**known),), source=FILE, host_us=20, touched=tuple(touched),
        variant=name,
    )  # fmt: skip


def op(name, touched, **step):
    """Return an elementwise op of torch."""
    moved = sum(read + written for _, read, written in touched)
    return TraceEvent("op", name, steps=(Step(**{"bytes": moved, **step}),), touched=tuple(touched))


def work(event, again=1, **explained):
    """Return the account of a launch whose blocks request each byte so many times; tensor n is the argument `t<n>`."""
    areas = {
        f"t{number}": [max(read, written), read, again * read, written, again * written]
        for number, read, written in event.touched
    }
    told = {
        "names": {f"t{number}": place for place, (number, _, _) in enumerate(event.touched)}, "lines": [],
        "busy": {"issue": 4, "integer": 2, "special": 0, "shared": 0, "double": 0}, "multiplied": [0, 0],
        "coalesced": [], "unspilled": [], "once": {}, **explained,
    }  # fmt: skip
    operations = {"half": 0, "tf32": 0, "fma": 0, "narrow": 0, "wide": 0, "issue": 4, "integer": 2, "special": 0}
    pairs = list(enumerate(event.touched))
    return {
        "variant": event.variant, "explained": told,
        "reads": [(place, read) for place, (_, read, _) in pairs if read],
        "writes": [(place, written) for place, (_, _, written) in pairs if written],
        "tally": {"kernel": event.name, "grid": [*event.grid], "operations": operations, "areas": areas, "types": {}},
    }  # fmt: skip


def joined(events, works) -> list[OwnLaunch]:
    """Return the launches among the events with their accounts."""
    return join(events, works, FILE, explanations([works]))
