# SPDX-License-Identifier: Apache-2.0
"""A pool's figures for Ray's metrics endpoint (Prometheus), tagged with the pool's name."""

from __future__ import annotations

from collections.abc import Mapping

from ray.util.metrics import Counter, Gauge, Histogram

from verl_kernel.env.pool.dispatcher import Observer
from verl_kernel.env.pool.outcome import Outcome
from verl_kernel.env.pool.stats import PoolStats

_PREFIX = "verl_kernel_gym"
_BOUNDARIES = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0]
GAUGES = {
    "queue": "Requests that wait for a judge.",
    "held_back": "Requests that wait for a place in the queue.",
    "busy": "Judges at work.",
    "alive": "Judges whose process is up.",
    "quarantined": "Judges taken out of rotation for failing.",
    "drained": "Judges that get nothing new, before maintenance.",
}
PREFILTER = {
    "passed": "Candidates that the prefilter let pass.",
    "refused": "Candidates that the prefilter refused, so that no GPU saw them.",
    "undecided": "Candidates that the prefilter could not judge.",
    "gpu_seconds_saved": "Estimated seconds of GPUs that refused candidates would have taken.",
}


class RayMetrics(Observer):
    """Gauges of the queue and the judges, counters of results, and histograms of seconds."""

    def __init__(self, name: str) -> None:
        tags = {"pool": name}
        self._gauges, self._prefilter = _gauges("", GAUGES), _gauges("prefilter_", PREFILTER)
        self._results = Counter(f"{_PREFIX}_results", "Results by status.", tag_keys=("pool", "status"))
        self._retries = Counter(f"{_PREFIX}_retries", "Evaluations done a second time.", tag_keys=("pool",))
        self._seconds = Histogram(f"{_PREFIX}_seconds", "Request to result.", _BOUNDARIES, tag_keys=("pool",))
        self._queued = Histogram(f"{_PREFIX}_queue_seconds", "Request to judge.", _BOUNDARIES, tag_keys=("pool",))
        counted = (self._results, self._retries, self._seconds, self._queued)
        for metric in (*self._gauges.values(), *self._prefilter.values(), *counted):
            metric.set_default_tags(tags)

    def result(self, outcome: Outcome, seconds: float) -> None:
        """Count a result and its seconds."""
        self._results.inc(1, tags={"status": outcome.result.status.value})
        if outcome.attempts > 1:
            self._retries.inc(outcome.attempts - 1)
        self._seconds.observe(seconds)
        self._queued.observe(outcome.queue_seconds)

    def state(self, stats: PoolStats) -> None:
        """Set the gauges."""
        for key, gauge in self._gauges.items():
            gauge.set(getattr(stats, key))
        if stats.prefilter is not None:
            for key, gauge in self._prefilter.items():
                gauge.set(getattr(stats.prefilter, key))


def _gauges(group: str, texts: Mapping[str, str]) -> dict[str, Gauge]:
    return {key: Gauge(f"{_PREFIX}_{group}{key}", text, tag_keys=("pool",)) for key, text in texts.items()}
