# SPDX-License-Identifier: Apache-2.0
"""The Ray pool's one entrance: a dispatcher over judge actors, itself an actor that Ray starts again after its death.

Its judges belong to it and end with it; once restarted, it has new ones and remembers no verdict. Requests, validation
and control are concurrency groups of their own, so that a full queue blocks neither of the other two.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.metrics import Counter, Gauge, Histogram
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl_kernel.env.judge_groups import JudgeGroup
from verl_kernel.env.options import FILES, GymOptions
from verl_kernel.env.pool.cluster.judge import RemoteJudge
from verl_kernel.env.pool.dispatcher import Dispatcher, Observer, Prefilter, prefilter_options
from verl_kernel.env.pool.event_loop import LoopThread
from verl_kernel.env.pool.stats import Outcome, PoolStats
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import option_names

# A pool's figures for Ray's metrics endpoint (Prometheus), tagged with the pool's name.


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


# Nodes and judges of a Ray cluster by the names that people have for them.


_SEE = "`verl-kernel serve-status` lists the judges and their nodes"


def find_nodes(name: str) -> list[str]:
    """Ids of the nodes of this address or host name, or of the one whose id begins so; lost ones count.

    Raises:
        ConfigError: there is none, or the beginning fits several ids.
    """
    nodes = ray.nodes()
    named = [node for node in nodes if name in (node["NodeManagerAddress"], node["NodeManagerHostname"])]
    begun = [node for node in nodes if name and node["NodeID"].startswith(name)]
    found = [str(node["NodeID"]) for node in named or begun]
    if not found or (not named and len(found) > 1):
        raise ConfigError(f"{name!r} names {len(found)} nodes of the cluster, by id, address or host name: {_SEE}")
    return found


def find_judge(number: int, count: int) -> list[int]:
    """The judge of this number.

    Raises:
        ConfigError: the pool has no such judge.
    """
    if not 0 <= number < count:
        raise ConfigError(f"the pool has no judge {number}: {_SEE}")
    return [number]


_LOG = logging.getLogger(__name__)
TRAINING, VALIDATION, CONTROL = "training", "validation", "control"
_MOST_WAITING = 256
"""Requests beyond the queue's size that the actor accepts: they wait with it for a place in the queue."""
_CONTROL_CALLS = 16


class Router:
    """Judges candidates for everybody in the cluster."""

    def __init__(self, options: GymOptions, seed: int | None, name: str) -> None:
        if ray.get_runtime_context().was_current_actor_reconstructed:
            _LOG.warning("the pool %s was lost and begins again with new judges and an empty memory", name)
        self._options, self._seed, self._name = options, seed, name
        self._judges = _make_judges(options, seed)
        prefilter = None
        if options.prefilter != "off":
            prefilter = Prefilter(_make_judges(prefilter_options(options), seed), options)
        self._dispatcher = Dispatcher(self._judges, options, RayMetrics(name), prefilter)
        self._loop = LoopThread("pool")

    async def start(self) -> None:
        """Let the judges start."""
        await self._loop.run(self._dispatcher.start())

    async def check_options(self, options: GymOptions, seed: int | None) -> None:
        """Refuse a caller whose options are not those that the pool was made from.

        Raises:
            ConfigError: they are not; names the keys.
        """
        there, here = _compared(self._options), _compared(options)
        if seed is not None:
            there["seed"], here["seed"] = self._seed, seed
        others = [f"{key} is {there[key]!r} there and {here[key]!r} here" for key in here if here[key] != there[key]]
        if others:
            raise ConfigError(
                f"the pool {self._name!r} was made from other options ({'; '.join(others)}): connect with the same "
                "ones, or give the pool another name"
            )

    async def judge(self, request: EvalRequest, lost: int) -> EvalResult:
        """Judge one candidate; `lost` attempts at it went down with a router before."""
        return await self._loop.run(self._dispatcher.judge(request, lost))

    async def ready(self) -> list[int]:
        """Process ids of the judges, once all of them have started."""
        await self._loop.run(self._dispatcher.ready())
        return [judge.pid for judge in self._judges if judge.pid is not None]

    async def stats(self) -> PoolStats:
        """Judges, queue and counts at this moment."""
        return await self._loop.run(self._dispatcher.stats())

    async def forget(self) -> None:
        """Forget all verdicts."""
        await self._loop.run(self._dispatcher.forget())

    async def drain(self, node: str | None, judge: int | None, on: bool) -> list[int]:
        """Let the judges of a node, or one judge, finish and give them nothing new; or take that back.

        Raises:
            ConfigError: there is no such node or judge.
        """
        nodes = () if node is None else find_nodes(node)
        judges = () if judge is None else find_judge(judge, len(self._judges))
        return await self._loop.run(self._dispatcher.drain(nodes, judges, on))


def _compared(options: GymOptions) -> dict[str, Any]:
    """What callers must agree on, by key: files by their names alone, as every process has a folder of its own."""
    values = {key: getattr(options, key) for key in option_names(GymOptions)}
    files = {key: Path(values[key]).name for key in FILES if values[key] is not None}
    return {f"{options.NODE}.{key}": value for key, value in {**values, **files}.items()}


def _make_judges(options: GymOptions, seed: int | None) -> list[RemoteJudge]:
    groups = options.judge_resources or (JudgeGroup(),)
    return [
        RemoteJudge(options, seed, group, label=group.name if len(groups) > 1 else "")
        for group in groups
        for _ in range(group.num_judges or options.num_judges)
    ]


def find_or_make_router(options: GymOptions, seed: int | None, name: str) -> Any:
    """The router called `name`, made now if there is none, on the node that asks: judges' nodes can be lost.

    A soft wish for that node is not enough: Ray may place the actor elsewhere while its nodes learn of each other.
    """
    at_once = options.queue_size + options.num_judges + _MOST_WAITING
    groups = {TRAINING: at_once, VALIDATION: at_once, CONTROL: _CONTROL_CALLS}
    make = ray.remote(concurrency_groups=groups)(Router).options(
        name=name, get_if_exists=True, num_cpus=0, max_restarts=-1, max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False),
    )  # fmt: skip
    router = make.remote(options, seed, name)
    router.start.options(concurrency_group=CONTROL).remote()
    return router
