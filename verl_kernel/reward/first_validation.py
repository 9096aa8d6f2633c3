# SPDX-License-Identifier: Apache-2.0
"""Stops a run whose first validation finds hardly any program: every reward would be 0, for hours.

A model that is cut while it thinks, or one that was never shown the format, writes none. The sampler counts and the
manager stops, before the first rollout of training; both live in the trainer's process. A run that only validates ends
before.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from verl_kernel.errors import ConfigError
from verl_kernel.reward.record import TurnRecord

KEY = "trainer.v1.sampler.sampler_kwargs.least_programs"
_objections: list[str] = []
"""The sentence about the first validation of the run in this process, empty where there is no objection."""


def begin() -> None:
    """Forget the validation of an earlier run in this process."""
    _objections.clear()


def note(turns: Iterable[TurnRecord], least_share: float) -> None:
    """Count the programs among a validation's answers; only the first validation of a run counts.

    Args:
        turns: all turns that were judged.
        least_share: share of them that must hold a program.
    """
    turns = list(turns)
    if not _objections and turns:
        without = [turn.stop - turn.start for turn in turns if turn.code is None]
        _objections.append(
            _sentence(len(turns), without) if len(turns) - len(without) < least_share * len(turns) else ""
        )


def refuse() -> None:
    """Check that the first validation, if there was one, found programs.

    Raises:
        ConfigError: it did not; the message says what to set.
    """
    if any(_objections):
        raise ConfigError(_objections[0])


def _sentence(answers: int, without: list[int]) -> str:
    return (
        f"{answers - len(without)} of the {answers} answers of the first validation hold a program (the others have "
        f"{statistics.median(without):.0f} tokens each), so hardly anything would be learned: if the model thinks, "
        "set data.apply_chat_template_kwargs.enable_thinking=false, or raise data.max_response_length (and "
        "kernelgym.turn_tokens); if it does not know the format, begin with a cold start (docs/train_on_gpus.md); to "
        f"go on all the same set {KEY}=0"
    )
