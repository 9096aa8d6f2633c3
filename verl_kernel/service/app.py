# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface of a service; `/docs` is its page for people, `/openapi.json` the one for programs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.middleware.trustedhost import TrustedHostMiddleware

from verl_kernel import __version__
from verl_kernel.client.messages import Evaluation, Evaluations, Submission, TaskId, TaskText, Wait, Wanted, task_name
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.stats import PoolStats
from verl_kernel.env.task import Task
from verl_kernel.errors import StorageError, TaskError
from verl_kernel.service.evaluation_queue import EvaluationQueue, JudgePool, ServiceRefusal
from verl_kernel.service.keys import Keys
from verl_kernel.service.limits import BodyLimits
from verl_kernel.service.metrics import exposition
from verl_kernel.service.options import ServiceOptions
from verl_kernel.service.page import requests_page
from verl_kernel.service.record import ServiceRecord

_FORGET_EVERY_S = 600.0
"""Seconds between two deletions of evaluations that are too old."""
_ROUTES = APIRouter()
_BEARER = HTTPBearer(auto_error=False, description="A key of the service's file of keys; none is needed without one.")


class Service:
    """What the routes share: the pool, its evaluations, and who may ask.

    Args:
        pool: judges.
        record: where tasks and evaluations are kept.
        keys: who may ask.
        options: limits.
        gym: how the pool judges.
    """

    def __init__(
        self, pool: JudgePool, record: ServiceRecord, keys: Keys, options: ServiceOptions, gym: GymOptions
    ) -> None:
        self.pool, self.record, self.keys, self.options, self.gym = pool, record, keys, options, gym
        self.queue = EvaluationQueue(pool, record, options.most_waiting)
        self.grace_s = options.grace_s
        """Seconds for unfinished evaluations once the server has stopped."""

    def app(self) -> FastAPI:
        """Return the application; with its start begins what an earlier service left unfinished."""
        # FastAPI's own page for people loads its script from another host, which a cluster may not reach.
        app = FastAPI(title="KernelGYM", version=__version__, lifespan=self._lifespan, docs_url=None, redoc_url=None)
        app.state.service = self
        app.include_router(_ROUTES)
        app.add_api_route("/", lambda: RedirectResponse("/docs"), include_in_schema=False)
        app.add_api_route("/docs", lambda: HTMLResponse(requests_page(app.openapi())), include_in_schema=False)
        app.add_middleware(BodyLimits, most_bytes=int(self.options.request_mb * 1e6), most_s=self.options.request_s)
        if not self.keys.by_digest:  # a page in a browser must not reach the service by a name of its own
            app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
        app.add_exception_handler(RequestValidationError, _unreadable)
        app.add_exception_handler(ServiceRefusal, _refused)
        app.add_exception_handler(StorageError, _not_stored)
        app.add_exception_handler(TaskError, _unfit)
        return app

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        await self.queue.resume()
        forgetting = asyncio.create_task(self._forget_old())
        try:
            yield
        finally:
            forgetting.cancel()
            await self.queue.close(self.grace_s)

    async def _forget_old(self) -> None:
        while True:
            with suppress(StorageError):  # the next time may find space
                await asyncio.to_thread(self.record.forget, time.time() - 3600 * self.options.keep_hours)
            await asyncio.sleep(_FORGET_EVERY_S)

    async def task(self, namespace: str, text_or_id: TaskText | str) -> Task:
        """Return the task that a request names or holds.

        Raises:
            HTTPException: the namespace has no task of this id.
            TaskError: the text defines no task.
        """
        if isinstance(text_or_id, str):
            stored = await asyncio.to_thread(self.record.task, namespace, text_or_id)
            if stored is None:
                raise HTTPException(404, f"there is no task {text_or_id!r}: send its reference to /v1/tasks first")
            text_or_id = stored
        return text_or_id.task(namespace)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(_service)]


def _namespace(service: Shared, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> str:
    header = None if credentials is None else f"{credentials.scheme} {credentials.credentials}"
    namespace = service.keys.namespace(header)
    if namespace is None:
        sentence = "the key is unknown or missing: send it as `Authorization: Bearer KEY`"
        raise HTTPException(401, sentence, headers={"WWW-Authenticate": "Bearer"})
    return namespace


Namespace = Annotated[str, Depends(_namespace)]


def _operator(service: Shared, namespace: Namespace) -> None:
    if not service.keys.is_operator(namespace):
        raise HTTPException(403, "only the key of the namespace `operator` may do this")


_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"description": "The key is unknown or missing."},
    422: {"description": "The request is not as it should be, or its reference is no task."},
}
_BUSY: dict[int | str, dict[str, Any]] = {
    **_ERRORS,
    404: {"description": "There is no task of this id."},
    408: {"description": "The body came too slowly."},
    413: {"description": "The body is too large."},
    429: {"description": "Too many unfinished evaluations; `Retry-After` says when to ask again."},
    503: {"description": "The service is about to end, or cannot record anything."},
}


@_ROUTES.post("/v1/tasks", responses=_BUSY)
async def add_task(task: TaskText, service: Shared, namespace: Namespace) -> TaskId:
    """Send a reference once; its id stands for it in evaluations."""
    name = task_name(task.task(namespace))
    await asyncio.to_thread(service.record.store_task, namespace, name, task)
    return TaskId(id=name)


@_ROUTES.post("/v1/evaluations", responses=_BUSY)
async def evaluate(submission: Submission, service: Shared, namespace: Namespace) -> Evaluations:
    """Have candidates judged; equal requests share an evaluation, so that a request can be repeated safely."""
    requests = [await _request(service, namespace, candidate) for candidate in submission.evaluations]
    return Evaluations(evaluations=await service.queue.submit(requests, submission.wait_s))


async def _request(service: Service, namespace: str, candidate: Wanted) -> Any:
    return candidate.request(await service.task(namespace, candidate.task))


_MISSING: dict[int | str, dict[str, Any]] = {**_ERRORS, 404: {"description": "There is no evaluation of this id."}}


@_ROUTES.get("/v1/evaluations/{name}", responses=_MISSING)
async def find(name: str, service: Shared, namespace: Namespace, wait_s: Annotated[Wait, Query()] = 0.0) -> Evaluation:
    """Return an evaluation, at its end or after `wait_s` seconds."""
    return await _or_404(service.queue.find(namespace, name, wait_s))


@_ROUTES.delete("/v1/evaluations/{name}", responses=_MISSING)
async def cancel(name: str, service: Shared, namespace: Namespace) -> Evaluation:
    """Say that an evaluation is no longer wanted; if nobody else wants it and it has not started, it never does."""
    return await _or_404(service.queue.cancel(namespace, name))


async def _or_404(lookup: Awaitable[Evaluation]) -> Evaluation:
    try:
        return await lookup
    except KeyError:
        raise HTTPException(404, "there is no evaluation of this id: it is another one's, or too old") from None


@_ROUTES.get("/health")
async def health() -> dict[str, str]:
    """Tell that the service answers."""
    return {"status": "ok"}


@_ROUTES.get("/ready", responses={503: {"description": "No judge runs, or the service is about to end."}})
async def ready(service: Shared, response: Response) -> dict[str, bool]:
    """Tell whether the service accepts evaluations and has a judge that runs."""
    alive = (await asyncio.to_thread(service.pool.stats)).alive
    is_ready = bool(alive) and not service.queue.is_draining
    response.status_code = 200 if is_ready else 503
    return {"ready": is_ready}


_OPERATORS: dict[int | str, dict[str, Any]] = {
    401: _ERRORS[401],
    403: {"description": "The key is not the operator's."},
}


@_ROUTES.get("/v1/options", responses={401: _ERRORS[401]})
async def options(service: Shared, _: Namespace) -> dict[str, Any]:
    """Return how the service judges: the values of the keys under `kernelgym`."""
    return asdict(service.gym)


@_ROUTES.get("/v1/stats", responses=_OPERATORS, dependencies=[Depends(_operator)])
async def stats(service: Shared) -> PoolStats:
    """Return the pool's judges, queue and counts."""
    return await asyncio.to_thread(service.pool.stats)


@_ROUTES.get("/metrics", responses=_OPERATORS, dependencies=[Depends(_operator)], response_class=Response)
async def metrics(service: Shared) -> Response:
    """Return the same for Prometheus."""
    text, kind = exposition(await asyncio.to_thread(service.pool.stats), service.queue)
    return Response(text, media_type=kind)


@_ROUTES.post("/v1/drain", responses=_OPERATORS, dependencies=[Depends(_operator)])
async def drain(service: Shared, undo: bool = False) -> dict[str, int]:
    """Accept nothing new, or accept again; tell how many evaluations are unfinished."""
    service.queue.is_draining = not undo
    return {"waiting": service.queue.waiting}


class _Ascii(JSONResponse):
    """JSON in ASCII: names of a client's fields may hold surrogates, which UTF-8 has no form for."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def _sentence(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return _Ascii({"detail": text}, status, headers)


async def _unreadable(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    fault = exc.errors()[0]
    if fault["type"] == "json_invalid":
        what = f"the body is no JSON ({fault['ctx']['error']} at character {fault['loc'][-1]})"
        return _sentence(422, f"{what}: correct it (/docs has an example)")
    if fault["loc"] == ("body",) and "json" not in (kind := request.headers.get("content-type", "")):
        what = f"the body is said to be {kind or 'of no type'}" if fault["input"] is not None else "there is no body"
        return _sentence(422, f"{what}: send JSON with the header `Content-Type: application/json`")
    field = ".".join(str(part) for part in fault["loc"] if part not in ("body", "query"))
    return _sentence(422, f"{field or 'the body'} is not as it should be: {fault['msg']} (/docs has the fields)")


async def _refused(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, ServiceRefusal)
    return _sentence(exc.status, str(exc), {"Retry-After": str(exc.retry_s)})


async def _not_stored(_: Request, exc: Exception) -> Response:
    sentence = "nothing is accepted, since nothing can be recorded: the service's disk is full or broken"
    return _sentence(503, sentence, {"Retry-After": "30"})


async def _unfit(_: Request, exc: Exception) -> Response:
    return _Ascii({"detail": str(exc), "type": type(exc).__name__}, 422)
