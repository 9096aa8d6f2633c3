# SPDX-License-Identifier: Apache-2.0
"""The figures of a service for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client import exposition as text_format
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from verl_kernel.env.pool.stats import PoolStats
    from verl_kernel.service.evaluation_queue import EvaluationQueue

_STATES = ("free", "busy", "down", "quarantined", "draining", "drained")


def exposition(stats: PoolStats, queue: EvaluationQueue) -> tuple[bytes, str]:
    """Return the figures as text, and its media type."""
    registry = CollectorRegistry()
    registry.register(_Figures(stats, queue))
    return text_format.generate_latest(registry), text_format.CONTENT_TYPE_LATEST


class _Figures:
    """A collector of one moment's figures."""

    def __init__(self, stats: PoolStats, queue: EvaluationQueue) -> None:
        self._stats, self._queue = stats, queue

    def collect(self) -> Iterator[Any]:
        stats, queue = self._stats, self._queue
        judges = GaugeMetricFamily("kernelgym_judges", "Judges by state.", labels=["state"])
        for state in _STATES:
            judges.add_metric([state], sum(judge.state == state for judge in stats.judges))
        yield judges
        results = CounterMetricFamily("kernelgym_results", "Results by status.", labels=["status"])
        for status, count in stats.statuses.items():
            results.add_metric([status], count)
        yield results
        ended = CounterMetricFamily(
            "kernelgym_evaluations_ended", "Accepted evaluations by their end.", labels=["state"]
        )
        for state, count in queue.ended.items():
            ended.add_metric([state], count)
        yield ended
        yield GaugeMetricFamily("kernelgym_evaluations_waiting", "Accepted evaluations without an end.", queue.waiting)
        yield CounterMetricFamily("kernelgym_evaluations_refused", "Evaluations not accepted.", queue.refused)
        yield CounterMetricFamily("kernelgym_attempts", "Evaluations by a judge, repeated ones too.", stats.evaluations)
        yield CounterMetricFamily("kernelgym_retries", "Evaluations repeated by another judge.", stats.retries)
        yield GaugeMetricFamily("kernelgym_results_per_second", "Pace of the last minute.", stats.recent_per_second)
