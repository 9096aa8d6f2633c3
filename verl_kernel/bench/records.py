# SPDX-License-Identifier: Apache-2.0
"""What a bench keeps on disk: a header, `run.json`; `tasks.jsonl`, a line a task; `turns.jsonl`, a line an answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verl_kernel.figures.record import Record
from verl_kernel.reward.record import Turn

FORMAT = 1
"""Of the files; raised whenever an older file could be misread."""

Failure = Literal["no_code", "too_long", "context_overflow", "malformed"]
"""Why an answer holds no program: none in it, cut at the token limit, no room for a prompt, no text at all."""


class RunHeader(Record):
    """What was asked for. A run goes on only where everything but `started` is the same."""

    format: int = FORMAT
    suite: str
    suite_hash: str
    """SHA-256 over the hashes of the tasks' texts, in order."""
    prompt_hash: str = ""
    """SHA-256 over the tasks' names and prompts, in order."""
    tasks: int
    model: str
    """Name at the endpoint, or the folder's."""
    source: Literal["endpoint", "vllm", "kernels"]
    samples: int
    turns: int
    context: str
    """Which earlier turns a prompt shows: `concat`, `last`, `best_window` or `top_w`."""
    window: int | None = None
    """How many, where not all."""
    temperature: float
    top_p: float
    max_tokens: int
    """Of one answer."""
    total_tokens: int | None = None
    """Of a trajectory: once it has spent as many, prompts included, no further turn begins."""
    total_seconds: float | None = None
    feedback: str = "short"
    """Form of the message after a turn: `short`, `full` or `none`."""
    feedback_chars: int = 800
    seed: int
    device: str
    baseline: Literal["eager", "compile"]
    gym: dict[str, object]
    """Options of the gym that differ from their defaults."""
    reward: dict[str, object] = Field(default_factory=dict)
    """Options of the reward that differ from their defaults."""
    versions: dict[str, str]
    started: str
    """Date and time, UTC, ISO 8601."""


class SuiteTask(Record):
    """One task of the suite, a line of `tasks.jsonl`, so that a task without any answer is not forgotten."""

    task_id: str
    task_hash: str
    level: int | None = None
    family: str | None = None
    reference: str | None = None
    """Text of the program; null in runs of before it was kept."""


class BenchTurn(Turn):
    """One answer of a model, with its verdict."""

    task_id: str
    task_hash: str
    """`env.Task.text_hash`: of the reference's text without comments and white space."""
    sample: Annotated[int, Field(ge=0)]
    turn: Annotated[int, Field(ge=1)]
    completion: str | None = None
    failure: Failure | None = None
    completion_tokens: int | None = None
    generate_s: float = 0.0
    judge_s: float = 0.0
    level: int | None = None
    family: str | None = None
