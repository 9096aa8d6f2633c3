# SPDX-License-Identifier: Apache-2.0
"""The files of a bench: a header, `run.json`; `tasks.jsonl`, one line per task; `turns.jsonl`, one line per answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from verl_kernel.figures.record import Record
from verl_kernel.reward.record import Turn

FORMAT = 1
"""Version of the files' format; raised whenever an older file could be misread."""

Failure = Literal["no_code", "too_long", "context_overflow", "malformed"]
"""Why an answer holds no program: none in the text, cut at the token limit, prompt too long, or no text at all."""


class RunHeader(Record):
    """The request of a run. A run continues only if everything except `started` is the same."""

    format: int = FORMAT
    suite: str
    suite_hash: str
    """SHA-256 over the hashes of the tasks' texts, in order."""
    prompt_hash: str = ""
    """SHA-256 over the tasks' names and prompts, in order."""
    tasks: int
    model: str
    """Name of the model at the endpoint, or name of its folder."""
    source: Literal["endpoint", "vllm", "kernels"]
    samples: int
    turns: int
    context: str
    """Which earlier turns a prompt shows: `concat`, `last`, `best_window` or `top_w`."""
    window: int | None = None
    """Number of earlier turns shown, if limited."""
    temperature: float
    top_p: float
    max_tokens: int
    """Limit of tokens of one answer."""
    total_tokens: int | None = None
    """Limit of tokens of a trajectory, prompts included: once it is reached, no further turn begins."""
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
    """Text of the program; null in runs that did not record it."""


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
