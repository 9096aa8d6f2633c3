# SPDX-License-Identifier: Apache-2.0
"""The source of a run's times in words, shown next to every speedup."""

from __future__ import annotations

from collections.abc import Iterable

from verl_kernel.bench.records import BenchTurn

CLOCKS = {
    "simulated": "simulated: a model of a GPU, no measurement",
    "cuda_event": "measured on a GPU",
}


def timing_sources(turns: Iterable[BenchTurn]) -> list[str]:
    """Return the clocks that timed some answers, sorted; empty where no kernel was timed."""
    return sorted({one.result.timing_source for one in turns if one.result.timing_source is not None})


def clock(turns: Iterable[BenchTurn]) -> str:
    """Return the source of the times, and their meaning."""
    sources = timing_sources(turns)
    if not sources:
        return "none: no kernel was timed"
    words = [CLOCKS.get(source, source) for source in sources]
    return words[0] if len(words) == 1 else f"mixed, and not comparable: {'; '.join(words)}"


def times(turns: Iterable[BenchTurn]) -> str:
    """Return the source of the times in two or three words, for a title."""
    sources = timing_sources(turns)
    return f"{' and '.join(sources)} times" if sources else "nothing timed"
