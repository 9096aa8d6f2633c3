# SPDX-License-Identifier: Apache-2.0
"""Judges by way of a service: the interface of `LocalPool` and `KernelGym` over HTTP."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import httpx

from verl_kernel.client.messages import LONGEST_WAIT_S, Evaluation
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.event_loop import LoopThread
from verl_kernel.env.pool.stats import PoolStats, not_judged
from verl_kernel.env.request import EvalRequest, Job
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError, EnvironmentNotReady, InfraError, TaskError, VerlKernelError

RETURN_S = 600.0
"""Longest time for which a service may be away before an evaluation ends as `infra_error`."""
_WAIT_S = LONGEST_WAIT_S / 2
"""Seconds for which the service may hold back its answer about an evaluation that has not ended."""
_ALL_WAIT_S = 10.0
"""How long the service may hold its answer back until all evaluations that were sent together have ended."""
_AT_ONCE = 32
"""Evaluations that are sent together."""
_PARTED = (413, 422, 429)
"""Statuses after which evaluations that were sent together are sent in halves: too large, one unfit, too many."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 20.0
"""Seconds before a refused request is sent again: at first, and at most."""
_ANSWER_S, _CONNECT_S = 30.0, 5.0
"""Seconds for an answer that is not held back, and for a connection."""
_RAISED: Mapping[str, type[VerlKernelError]] = {
    error.__name__: error for error in (TaskError, ConfigError, EnvironmentNotReady)
}
"""What a pool raises; any other problem of a service makes an `infra_error`."""


class RemoteGym:
    """A handle on a service that can be pickled and sent to any process.

    An evaluation outlives a restart of the service: it is sent again, and equal requests share one evaluation. While
    the service has too much to do, callers wait.

    Args:
        address: of the service, as in `http://judges:8008`.
        key: an API key of the service.
        return_s: longest time for which the service may be away.
    """

    def __init__(self, address: str, key: str | None = None, return_s: float = RETURN_S) -> None:
        self._address, self._key, self._return_s = address, key, return_s
        self._loop = LoopThread("remote-gym")
        self._tasks: dict[tuple[str, str], str] = {}
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        timeout = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_WAIT_S + _ANSWER_S, pool=None)
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
        # Without `trust_env`: a proxy of the environment rarely knows the machines of a cluster.
        self._http = httpx.AsyncClient(
            base_url=address, headers=headers, timeout=timeout, limits=limits, trust_env=False
        )

    @classmethod
    def connect(cls, options: GymOptions) -> RemoteGym:
        """Return a handle on the service that options name, which must judge as they say.

        Raises:
            ConfigError: the service judges by other options.
            EnvironmentNotReady: no service answers, or it does not know the key.
        """
        assert options.address is not None
        gym = cls(options.address, read_key(options.address_key))
        try:
            gym.refuse_others(options)
        except VerlKernelError:
            gym.close()
            raise
        return gym

    def __reduce__(self) -> tuple[Callable[..., RemoteGym], tuple[Any, ...]]:
        return RemoteGym, (self._address, self._key, self._return_s)

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate; arguments as in `KernelGym.evaluate`.

        Raises:
            TaskError: the reference is unusable.
            EnvironmentNotReady: the key is unknown, or no judge can start.
        """
        # The answer is not held back: its id is what takes the evaluation back.
        (result,) = await self._loop.run(
            self._evaluate_together([EvalRequest(task, source, kernel, validate, step)], 0.0)
        )
        return result

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates and return results in the order of `jobs`."""
        requests = [EvalRequest(*job) for job in jobs]
        parts = [requests[start : start + _AT_ONCE] for start in range(0, len(requests), _AT_ONCE)]
        futures = [self._loop.submit(self._evaluate_together(part, _ALL_WAIT_S)) for part in parts]
        return [result for future in futures for result in future.result()]

    def stats(self) -> PoolStats:
        """Return the service's judges, queue and counts; with keys, the operator's alone may ask.

        Raises:
            EnvironmentNotReady: the service does not answer, or refuses.
        """
        return PoolStats.model_validate_json(self._loop.submit(self._request_once("GET", "/v1/stats")).result().content)

    def options(self) -> dict[str, Any]:
        """Return the service's values of the keys under `kernelgym`.

        Raises:
            EnvironmentNotReady: the service does not answer, or refuses.
        """
        values: dict[str, Any] = self._loop.submit(self._request_once("GET", "/v1/options")).result().json()
        return values

    def refuse_others(self, options: GymOptions) -> None:
        """Refuse a service that judges by other options.

        Raises:
            ConfigError: one differs.
            EnvironmentNotReady: the service does not answer, or refuses.
        """
        theirs = self.options()
        ours = json.loads(json.dumps(asdict(options)))
        if ours["device"] == "auto":
            ours["device"] = theirs["device"]
        if others := [key for key in options.judging_keys() if ours[key] != theirs[key]]:
            told = (f"kernelgym.{key} is {ours[key]!r}" for key in others)
            raise ConfigError(
                f"{' and '.join(told)}, but the service at {self._address} judges with "
                f"{', '.join(repr(theirs[key]) for key in others)}: give the values of the service here, or start it "
                "with these"
            )

    def close(self) -> None:
        """End this handle; the service goes on."""
        if not self._loop.closed:
            self._loop.submit(self._http.aclose()).result()
            self._loop.close()

    def __enter__(self) -> RemoteGym:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    async def _evaluate_together(self, requests: Sequence[EvalRequest], wait_s: float) -> list[EvalResult]:
        """Send requests together, whose answer may wait `wait_s` seconds, and await the end of each."""
        sending = asyncio.ensure_future(self._send(requests, wait_s))
        try:
            evaluations = await asyncio.shield(sending)
            if not evaluations:
                middle = len(requests) // 2
                halves = (self._evaluate_together(half, wait_s) for half in (requests[:middle], requests[middle:]))
                return [result for half in await asyncio.gather(*halves) for result in half]
            return await asyncio.gather(*map(self._await_end, requests, evaluations))
        except asyncio.CancelledError:
            await self._take_back(sending)
            raise
        except InfraError as exc:
            return [not_judged(request, exc, 1) for request in requests]

    async def _await_end(self, request: EvalRequest, evaluation: Evaluation) -> EvalResult:
        try:
            while evaluation.state == "waiting":
                evaluation = await self._poll(request, evaluation.id)
        except InfraError as exc:
            return not_judged(request, exc, 1)
        return _result(request, evaluation)

    async def _send(self, requests: Sequence[EvalRequest], wait_s: float = 0.0) -> list[Evaluation]:
        """Send requests; return nothing if they are refused together, which each of them alone may not be."""
        candidates = [
            {
                "task": await self._task_id(request.task),
                "source": request.source,
                "kernel": request.kernel,
                "validate": request.validate,
                "step": request.step,
            }
            for request in requests
        ]
        body = {"evaluations": candidates, "wait_s": wait_s}
        parted = _PARTED if len(requests) > 1 else ()
        answer = await self._request_until_taken("POST", "/v1/evaluations", body, parted)
        if answer.status_code in parted:
            return []
        if answer.status_code == 404:  # the service has another folder now
            self._tasks.clear()
            return await self._send(requests, wait_s)
        return [Evaluation(**fields) for fields in _body_or_raise(answer)["evaluations"]]

    async def _poll(self, request: EvalRequest, name: str) -> Evaluation:
        answer = await self._request_until_taken("GET", f"/v1/evaluations/{name}?wait_s={_WAIT_S:g}")
        if answer.status_code == 404:
            return (await self._send([request]))[0]
        return Evaluation(**_body_or_raise(answer))

    async def _take_back(self, sending: asyncio.Future[list[Evaluation]]) -> None:
        """Tell the service that evaluations are no longer wanted."""
        try:
            for evaluation in await asyncio.wait_for(asyncio.shield(sending), _ANSWER_S):
                await self._request_once("DELETE", f"/v1/evaluations/{evaluation.id}")
        except (VerlKernelError, asyncio.TimeoutError):
            sending.cancel()

    async def _task_id(self, task: Task) -> str:
        key = task.fingerprint, task.task_id
        if key not in self._tasks:
            text = {"reference": task.reference, "task_id": task.task_id, "entry_point": task.entry_point}
            self._tasks[key] = str(_body_or_raise(await self._request_until_taken("POST", "/v1/tasks", text))["id"])
        return self._tasks[key]

    async def _request_until_taken(
        self, method: str, path: str, body: object = None, returned: Sequence[int] = ()
    ) -> httpx.Response:
        """Send a request until the service takes it; while it has too much to do there is no limit.

        Args:
            method: of the request.
            path: of the request.
            body: of the request, for JSON; None for none.
            returned: statuses after which the request is not sent again.

        Raises:
            InfraError: the service has been away for too long.
        """
        end, refused = time.monotonic() + self._return_s, 0
        while True:
            pause = _PAUSE_S
            try:
                answer = await self._request(method, path, body)
                if answer.status_code in returned or answer.status_code not in (408, 429, 502, 503, 504):
                    return answer
                failure, pause = _detail(answer), float(answer.headers.get("Retry-After", _PAUSE_S))
                if answer.status_code == 429:
                    end, refused = time.monotonic() + self._return_s, refused + 1
            except httpx.TransportError as exc:
                failure = f"{type(exc).__name__}: {exc}"
            if time.monotonic() > end:
                raise InfraError(f"the service at {self._address} has been away for {self._return_s:g} s: {failure}")
            # Many clients that were refused must not come back at once, nor keep the service busy with refusing them.
            await asyncio.sleep(min(pause * 1.5**refused, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0))

    async def _request_once(self, method: str, path: str) -> httpx.Response:
        try:
            answer = await self._request(method, path, None)
        except httpx.TransportError as exc:
            is_tls = self._address.startswith("https:")
            remedy = "if no proxy with TLS is there, write http://" if is_tls else "start one with `verl-kernel serve`"
            raise EnvironmentNotReady(
                f"no service answers at {self._address} ({type(exc).__name__}): {remedy}"
            ) from exc
        if answer.status_code in (401, 403):
            _refuse_key(self._address, answer)
        if answer.is_error:
            raise EnvironmentNotReady(f"the service at {self._address} refuses {path}: {_detail(answer)}")
        return answer

    async def _request(self, method: str, path: str, body: object) -> httpx.Response:
        # `json=` would write text as UTF-8, which lone surrogates of a candidate have no form in.
        content = None if body is None else json.dumps(body).encode()
        answer = await self._http.request(method, path, content=content, headers={"Content-Type": "application/json"})
        return answer


def read_key(path: str | None) -> str | None:
    """Return the key that a file holds; None if no file is named.

    Raises:
        ConfigError: the file cannot be read, or holds something else.
    """
    if path is None:
        return None
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"kernelgym.address_key is {path}, which cannot be read: {exc}") from exc
    if len(key.split()) != 1:  # the service's own file has a line for each namespace
        raise ConfigError(f"kernelgym.address_key is {path}, which holds no key alone: leave out the namespace")
    return key


def _body_or_raise(answer: httpx.Response) -> dict[str, Any]:
    """Return the body of an answer.

    Raises:
        TaskError: the reference is unusable.
        EnvironmentNotReady: the key is unknown.
        InfraError: the service refuses the request for another reason.
    """
    if answer.status_code in (401, 403):
        _refuse_key(str(answer.url.copy_with(path="/", query=None)), answer)
    if answer.status_code == 422 and answer.json().get("type") == "TaskError":
        raise TaskError(_detail(answer))
    if answer.is_error:
        raise InfraError(f"the service answers {answer.status_code}: {_detail(answer)}")
    read: dict[str, Any] = answer.json()
    return read


def _refuse_key(address: str, answer: httpx.Response) -> NoReturn:
    raise EnvironmentNotReady(
        f"the service at {address} refuses the key ({_detail(answer)}): name a file with a key of its own in "
        "kernelgym.address_key"
    )


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):  # something else than the service answered
        return answer.text[:200]


def _result(request: EvalRequest, evaluation: Evaluation) -> EvalResult:
    """Return the result of an evaluation that has ended; raise what a pool would raise."""
    if evaluation.result is not None:
        return EvalResult.model_validate_json(json.dumps(evaluation.result))
    assert evaluation.problem is not None
    if (kind := _RAISED.get(evaluation.problem.type)) is not None:
        raise kind(evaluation.problem.message)
    return not_judged(request, InfraError(evaluation.problem.message), 1)
