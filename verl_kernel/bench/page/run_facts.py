# SPDX-License-Identifier: Apache-2.0
"""The header of a bench as a list of facts for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_kernel.bench.records import BenchTurn, RunHeader
from verl_kernel.figures.record import Scores

_SOURCES = {"endpoint": "at an endpoint", "vllm": "served by vLLM", "kernels": "a folder of kernels"}
_CONTEXTS = {
    "concat": "all earlier turns",
    "last": "the last turns",
    "best_window": "the best window of turns",
    "top_w": "the best turns",
}


def run_facts(header: RunHeader, scores: Scores, turns: Sequence[BenchTurn]) -> dict[str, str]:
    """Return facts by name, in the order of display."""
    facts = {
        "model": f"{header.model}, {_SOURCES[header.source]}",
        "suite": f"{header.suite}, {header.tasks:,} tasks (text hash {header.suite_hash[:12]})",
        "speedup over": f"the reference in {header.baseline} mode",
        "device": _device(header, turns),
        "asked for": f"{_count(header.samples, 'sample')} a task, {_count(header.turns, 'turn')} each",
        "answers": _answers(scores),
        "prompts": f"show {_context(header)}",
        "sampling": (
            f"temperature {header.temperature:g}, top-p {header.top_p:g}, "
            f"at most {header.max_tokens:,} tokens, seed {header.seed}"
        ),
        "gym": _pairs(header.gym) or "defaults",
        "reward": _pairs(header.reward) or "defaults",
        "versions": _pairs(header.versions),
    }
    if header.source == "kernels":
        del facts["sampling"], facts["prompts"]
    return facts


def _device(header: RunHeader, turns: Sequence[BenchTurn]) -> str:
    """Return the requested device, and the GPUs that verdicts name."""
    words = {"gpu_name": "{}", "gpu_profile": "clock of a simulated {}"}
    named = {words[key].format(one.result.env[key]) for one in turns for key in words if one.result.env.get(key)}
    return ", ".join([header.device, *sorted(named)])


def _context(header: RunHeader) -> str:
    words = _CONTEXTS.get(header.context, header.context)
    return words if header.window is None else f"{words}, at most {header.window} (`{header.context}`)"


def _answers(scores: Scores) -> str:
    parts = [f"{scores.answers:,} judged" if not scores.lost else f"{scores.answers - scores.lost:,} judged"]
    parts += [f"{scores.lost:,} lost by the gym (in no figure)"] * bool(scores.lost)
    parts += [f"{scores.missing:,} samples without any answer (each counts as a failure)"] * bool(scores.missing)
    parts += [f"{scores.ended_early:,} samples ended before the last turn"] * bool(scores.ended_early)
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
