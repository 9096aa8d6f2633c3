# SPDX-License-Identifier: Apache-2.0
"""The router of a Ray pool: the actor that receives all requests and dispatches them to judge actors.

Ray restarts the router if it dies. The judges belong to the router and end with it; a restarted router has new judges
and an empty verdict cache. Training, validation and control calls use three separate concurrency groups: a full queue
of training requests blocks neither validation nor control.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.metrics import Counter, Gauge, Histogram
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl_kernel.env.options import FILES, GymOptions
from verl_kernel.env.pool.cluster.judge import RemoteJudge
from verl_kernel.env.pool.dispatcher import Dispatcher, Observer, Prefilter, prefilter_options
from verl_kernel.env.pool.event_loop import LoopThread
from verl_kernel.env.pool.stats import PoolOutcome, PoolStats
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import option_names

# Metrics of a pool for Ray's Prometheus endpoint, tagged with the pool's name.


_PREFIX = "verl_kernel_gym"
_BOUNDARIES = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0]
GAUGES = {
    "queue": "Requests that wait for a judge.",
    "held_back": "Requests that wait for a place in the queue.",
    "busy": "Judges at work.",
    "alive": "Judges whose process is up.",
    "quarantined": "Judges taken out of rotation for failing.",
    "drained": "Judges that get no new work, before maintenance.",
}
PREFILTER = {
    "passed": "Candidates that the prefilter let pass.",
    "refused": "Candidates that the prefilter refused, so that no GPU saw them.",
    "undecided": "Candidates that the prefilter could not judge.",
    "gpu_seconds_saved": "Estimated seconds of GPUs that refused candidates would have taken.",
}


class RayMetrics(Observer):
    """An observer that exports the queue and judges as gauges, results as counters and seconds as histograms."""

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

    def result(self, outcome: PoolOutcome, seconds: float) -> None:
        """Count one result, its retries and its seconds."""
        self._results.inc(1, tags={"status": outcome.result.status.value})
        if outcome.attempts > 1:
            self._retries.inc(outcome.attempts - 1)
        self._seconds.observe(seconds)
        self._queued.observe(outcome.queue_seconds)

    def state(self, stats: PoolStats) -> None:
        """Set the gauges from the pool's statistics."""
        for key, gauge in self._gauges.items():
            gauge.set(getattr(stats, key))
        if stats.prefilter is not None:
            for key, gauge in self._prefilter.items():
                gauge.set(getattr(stats.prefilter, key))


def _gauges(group: str, texts: Mapping[str, str]) -> dict[str, Gauge]:
    return {key: Gauge(f"{_PREFIX}_{group}{key}", text, tag_keys=("pool",)) for key, text in texts.items()}


# Look up nodes and judges by what a user types: an id or its beginning, an address, a host name, a number.


_SEE = "`verl-kernel serve-status` lists the judges and their nodes"


def find_nodes(name: str) -> list[str]:
    """Return the ids of the nodes with this address or host name, or else of the node whose id begins with `name`.

    Nodes that Ray has lost count too: their judges may come back.

    Raises:
        ConfigError: no node matches, or several ids begin with `name`.
    """
    nodes = ray.nodes()
    named = [node for node in nodes if name in (node["NodeManagerAddress"], node["NodeManagerHostname"])]
    begun = [node for node in nodes if name and node["NodeID"].startswith(name)]
    ids = [str(node["NodeID"]) for node in named or begun]
    if not ids or (not named and len(ids) > 1):
        raise ConfigError(f"{name!r} names {len(ids)} nodes of the cluster, by id, address or host name: {_SEE}")
    return ids


def find_judge(number: int, count: int) -> list[int]:
    """Return `[number]` after checking that the pool of `count` judges has it.

    Raises:
        ConfigError: the pool has no judge of this number.
    """
    if not 0 <= number < count:
        raise ConfigError(f"the pool has no judge {number}: {_SEE}")
    return [number]


_LOG = logging.getLogger(__name__)
TRAINING, VALIDATION, CONTROL = "training", "validation", "control"
_MOST_WAITING = 256
"""Requests beyond the queue's size that the actor accepts; they wait inside it for a place in the queue."""
_CONTROL_CALLS = 16
"""Control calls that the actor serves at once."""


class Router:
    """The Ray actor that judges candidates for all processes of the cluster."""

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
        """Start the judges without waiting for them."""
        await self._loop.run(self._dispatcher.start())

    async def check_options(self, options: GymOptions, seed: int | None) -> None:
        """Compare a caller's options with those that the pool was made from; a `seed` of None is not compared.

        Raises:
            ConfigError: they differ; the message names the keys and both values.
        """
        pool_values, caller_values = _compared(self._options), _compared(options)
        if seed is not None:
            pool_values["seed"], caller_values["seed"] = self._seed, seed
        differences = [
            f"{key} is {pool_values[key]!r} there and {caller_values[key]!r} here"
            for key in caller_values
            if caller_values[key] != pool_values[key]
        ]
        if differences:
            raise ConfigError(
                f"the pool {self._name!r} was made from other options ({'; '.join(differences)}): connect with the "
                "same ones, or give the pool another name"
            )

    async def judge(self, request: EvalRequest, lost: int) -> EvalResult:
        """Judge one candidate; `lost` earlier attempts ended when a previous router died."""
        return await self._loop.run(self._dispatcher.judge(request, lost))

    async def ready(self) -> list[int]:
        """Wait until all judges have started and return their process ids."""
        await self._loop.run(self._dispatcher.ready())
        return [judge.pid for judge in self._judges if judge.pid is not None]

    async def one_ready(self) -> None:
        """Wait until one judge has started."""
        await self._loop.run(self._dispatcher.one_ready())

    async def stats(self) -> PoolStats:
        """Return the current judges, queue and counts."""
        return await self._loop.run(self._dispatcher.stats())

    async def forget(self) -> None:
        """Forget all verdicts."""
        await self._loop.run(self._dispatcher.forget())

    async def drain(self, node: str | None, judge: int | None, on: bool) -> list[int]:
        """Stop giving work to the judges of a node or to one judge (`on`), or resume; return the judges' numbers.

        Raises:
            ConfigError: the node or judge does not exist.
        """
        nodes = () if node is None else find_nodes(node)
        judges = () if judge is None else find_judge(judge, len(self._judges))
        return await self._loop.run(self._dispatcher.drain(nodes, judges, on))


def _compared(options: GymOptions) -> dict[str, Any]:
    """Return the option values that all callers must share, by key.

    Files are compared by name only: each process may keep them in a different folder.
    """
    values = {key: getattr(options, key) for key in option_names(GymOptions)}
    files = {key: Path(values[key]).name for key in FILES if values[key] is not None}
    return {f"{options.NODE}.{key}": value for key, value in {**values, **files}.items()}


def _make_judges(options: GymOptions, seed: int | None) -> list[RemoteJudge]:
    return [RemoteJudge(options, seed) for _ in range(options.num_judges)]


def find_or_make_router(options: GymOptions, seed: int | None, name: str) -> Any:
    """Return the router called `name`; make it on the caller's node if it does not exist.

    The router is pinned to the caller's node, because nodes that only run judges may be lost. A soft affinity is not
    enough: while the nodes still register with each other, Ray may place the actor on another node.
    """
    at_once = options.queue_size + options.num_judges + _MOST_WAITING
    groups = {TRAINING: at_once, VALIDATION: at_once, CONTROL: _CONTROL_CALLS}
    make = ray.remote(concurrency_groups=groups)(Router).options(
        name=name,
        get_if_exists=True,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False),
    )
    router = make.remote(options, seed, name)
    router.start.options(concurrency_group=CONTROL).remote()
    return router
