# SPDX-License-Identifier: Apache-2.0
"""Predicts the times of the kernels that earlier steps judged and timed, and compares: `verl-kernel clock validate`.

Run: python -m benchmarks.hour.clock TIMES.parquet FOLDER... [-- OPTION ...]. A folder is a report's of bench_gpu.py, or
a bench's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.judged import FILE, row
from verl_kernel.bench.measured import COLUMNS
from verl_kernel.bench.records import HEADER, read_tasks, read_turns


def timed_kernels(folder: Path) -> Iterator[dict[str, Any]]:
    """Rewarded kernels of a report or of a bench, with their references and measured times."""
    if (folder / FILE).exists():
        yield from map(json.loads, (folder / FILE).read_text().splitlines())
    if (folder / HEADER).exists():
        references = {task.task_id: task.reference for task in read_tasks(folder)}
        for turn in read_turns(folder):
            if turn.result.rewarded and turn.result.kernel_ms is not None:
                yield row(references[turn.task_id] or "", turn.code or "", turn.result.kernel_ms.median)


def main(words: Sequence[str]) -> int:
    """Write the kernels' file, print the tables, and return the command's status."""
    import pyarrow as pa  # what the command needs, and the steps before it do not
    import pyarrow.parquet as pq

    places, options = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    file, *folders = map(Path, places)
    kernels = {(one["reference"], one["kernel"]): one for folder in folders for one in timed_kernels(folder)}
    if not kernels:
        sys.exit(f"no kernel of {', '.join(path.name for path in folders)} was rewarded and timed")
    pq.write_table(pa.table({name: [one[name] for one in kernels.values()] for name in COLUMNS}), file)
    return subprocess.call([sys.executable, "-m", "verl_kernel", "clock", "validate", str(file), *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
