# SPDX-License-Identifier: Apache-2.0
"""A log of all that was counted by `counts`, so that a resumed run knows the pass rates: a JSON object per batch.

Fields: `step`, and `found` with the number of rollouts and of positive ones by prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from verl_kernel.adaptive.counts import Counts


class CountLog:
    """Keeps the log file; `restore` removes lines that an earlier run wrote for later steps.

    Args:
        path: the file; its folder is created if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = False

    def restore(self, step: int, counts: Counts) -> None:
        """Give `counts` the results of all steps before `step`; only the first call does so."""
        if self._open:
            return
        self._open = True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        # A run that was killed may have left the start of a line.
        whole = text[: text.rfind("\n") + 1].splitlines()
        earlier = [line for line in whole if json.loads(line)["step"] < step]
        for line in earlier:
            counts.update(json.loads(line)["found"])
        self._path.write_text("".join(f"{line}\n" for line in earlier), encoding="utf-8")

    def append(self, step: int, found: Mapping[str, tuple[int, int]]) -> None:
        """Append the counts of a step's batch."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "found": found}) + "\n")
