# SPDX-License-Identifier: Apache-2.0
"""The Ray pool's one entrance: a dispatcher over judge actors, itself an actor that Ray starts again after its death.

Its judges belong to it and end with it; once restarted, it has new ones and remembers no verdict. Requests, validation
and control are concurrency groups of their own, so that a full queue blocks neither of the other two.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl_kernel.env.judge_groups import JudgeGroup
from verl_kernel.env.options import FILES, GymOptions
from verl_kernel.env.pool.cluster.judge import RemoteJudge
from verl_kernel.env.pool.cluster.metrics import RayMetrics
from verl_kernel.env.pool.cluster.nodes import find_judge, find_nodes
from verl_kernel.env.pool.dispatcher import Dispatcher
from verl_kernel.env.pool.event_loop import LoopThread
from verl_kernel.env.pool.prefilter import Prefilter, prefilter_options
from verl_kernel.env.pool.stats import PoolStats
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import option_names

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

    async def agree(self, options: GymOptions, seed: int | None) -> None:
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
