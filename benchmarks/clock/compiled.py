# SPDX-License-Identifier: Apache-2.0
"""What one forward of a reference runs if `torch.compile` compiles it, as the gym counts it without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent

Forward = Callable[[Path], tuple[Sequence[TraceEvent], Mapping[str, int]]]
"""Returns the events of a program's forward, and how many blocks of each kernel fit into an SM."""
_LIMIT_S = 600.0


@contextmanager
def compiled_forwards(cache: Path | None) -> Iterator[Forward]:
    """Yield a function that counts compiled programs, by a judge's processes.

    Args:
        cache: folder in which what was found is kept; None for nowhere.
    """
    options = GymOptions(
        device="cpu", reference_mode="compile", compile_for="sm_90", reference_timeout_s=_LIMIT_S,
        reference_cache=None if cache is None else str(cache),
    )  # fmt: skip
    with Judge(options, seed=0) as judge:
        judge.warm_up()

        def forward(path: Path) -> tuple[Sequence[TraceEvent], Mapping[str, int]]:
            found = judge.compiled(Task(path.read_text(), path.stem))
            assert found is not None  # the options ask for it
            return found.events, found.blocks_per_sm

        yield forward
