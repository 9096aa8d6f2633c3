# SPDX-License-Identifier: Apache-2.0
"""How many processes the kernel has killed for want of memory: the evidence that a kill came from outside.

The counter of this process's control group counts no other group's processes, whichever limit was hit; where there is
none, the machine's counter is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_ROOT = Path("/sys/fs/cgroup")


def oom_kills() -> int:
    """The counter of this process's control group, or of the machine; only its growth means anything."""
    place = _counter()
    return 0 if place is None else _read(place) or 0


@lru_cache(maxsize=1)
def _counter() -> Path | None:
    return next((place for place in _places() if _read(place) is not None), None)


def _places() -> Iterator[Path]:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "":
                yield _ROOT / path.lstrip("/") / "memory.events"
            elif "memory" in kinds.split(","):
                yield _ROOT / "memory" / path.lstrip("/") / "memory.oom_control"
    yield from (_ROOT / "memory.events", _ROOT / "memory" / "memory.oom_control", Path("/proc/vmstat"))


def _read(place: Path) -> int | None:
    with suppress(OSError):
        if found := _COUNT.search(place.read_bytes()):
            return int(found[1])
    return None
