# SPDX-License-Identifier: Apache-2.0
"""What the service and its clients say to each other, as JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.task import Task

MOST_AT_ONCE = 256
"""Evaluations in one request."""
LONGEST_WAIT_S = 60.0
"""Longest that an answer is held back for a result."""
State = Literal["waiting", "done", "failed", "lost", "cancelled"]
"""`done` has a result, `failed` an error that a repetition would meet again; `lost` work began several times and ended
with the service each time; `cancelled` was not judged, as nobody wanted it any more."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a text")
    return value


Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]
"""Text as a policy may write it, with lone surrogates too, which pydantic's own type refuses."""
Name = Annotated[str, Field(max_length=200)]
Wait = Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)]


class Message(BaseModel):
    """Base of messages; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class TaskText(Message):
    """A reference program."""

    reference: Text
    task_id: Name = ""
    entry_point: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "Model"

    def task(self, namespace: str) -> Task:
        """Make the task.

        Raises:
            TaskError: the text defines none.
        """
        return Task(self.reference, self.task_id, self.entry_point, namespace=namespace)


class TaskId(Message):
    """The answer to a task that is sent once: name it by `id` from then on."""

    id: str


class Wanted(Message):
    """A candidate to judge."""

    task: TaskText | Name
    """The reference, or the id of a task that was sent before."""
    source: Text
    kernel: Name = ""
    is_validation: Annotated[bool, Field(alias="validate")] = False
    """Judge it before those of training."""
    step: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = None
    """Training step; equal sources of a step share a verdict, and another step has another one."""

    def request(self, task: Task) -> EvalRequest:
        """Return the request for a pool."""
        return EvalRequest(task, self.source, self.kernel, self.is_validation, self.step)


class Submission(Message):
    """Candidates to judge, and for how many seconds the answer may wait for their results."""

    evaluations: Annotated[list[Wanted], Field(min_length=1, max_length=MOST_AT_ONCE)]
    wait_s: Wait = 0.0


class Problem(Message):
    """Why there is no result."""

    type: str
    """Class of the exception, as in `TaskError`."""
    message: str


class Evaluation(Message):
    """An accepted evaluation."""

    id: str
    """Equal requests of a namespace have the same one."""
    state: State
    result: dict[str, Any] | None = None
    """The `EvalResult`, as `verl-kernel eval --json` prints it; set if `state` is `done`."""
    problem: Problem | None = None
    """Set if it has ended without a result."""


class Evaluations(Message):
    """Accepted evaluations, in the order of the request."""

    evaluations: list[Evaluation]


def evaluation_id(request: EvalRequest) -> str:
    """Return the id that equal requests of a namespace share; it is no secret, and only its namespace may use it."""
    task = request.task
    parts = (task.namespace, task.fingerprint, task.task_id, request.source, request.kernel)
    text = json.dumps([*parts, request.validate, request.step])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def task_name(task: Task) -> str:
    """Return the id of a task that is sent once."""
    return hashlib.sha256(json.dumps([task.namespace, task.fingerprint, task.task_id]).encode()).hexdigest()[:40]


def packed(request: EvalRequest) -> str:
    """Return a request as JSON, for `unpacked`."""
    task = request.task
    return json.dumps(
        {
            "task": [task.reference, task.task_id, task.entry_point, task.namespace],
            "rest": [request.source, request.kernel, request.validate, request.step],
        }
    )


def unpacked(text: str) -> EvalRequest:
    """Return the request that `packed` wrote."""
    read = json.loads(text)
    reference, task_id, entry_point, namespace = read["task"]
    return EvalRequest(Task(reference, task_id, entry_point, namespace=namespace), *read["rest"])
