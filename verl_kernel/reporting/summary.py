# SPDX-License-Identifier: Apache-2.0
"""A run's facts (its configuration, the source of its times), and its change from the first to the last steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from verl_kernel.reporting.run_config import RunConfig
from verl_kernel.reporting.steps import Step, number, series

_KEYS = {
    "experiment": "trainer.experiment_name",
    "model": "actor_rollout_ref.model.path",
    "training data": "data.train_files",
    "validation data": "data.val_files",
    "seed of the data": "data.seed",
    "estimator": "algorithm.adv_estimator",
    "turns": "kernelgym.max_turns",
    "prompts a step": "data.train_batch_size",
    "rollouts a prompt": "actor_rollout_ref.rollout.n",
    "learning rate": "actor_rollout_ref.actor.optim.lr",
    "loss": "actor_rollout_ref.actor.policy_loss.loss_mode",
    "mismatch rejects by": "algorithm.rollout_correction.rollout_rs",
    "mismatch weighs": "algorithm.rollout_correction.rollout_is",
    "speedup over": "kernelgym.reference_mode",
    "speedup in the reward": "kernelgym.reward.variant",
    "coverage in the reward": "kernelgym.reward.coverage_weight",
    "PRS": "trainer.v1.sampler.sampler_kwargs.enabled",
    "trainer": "trainer.v1.trainer_mode",
}
_PARTS = {
    "token": "a token's",
    "seq": "a trajectory's",
    "group": "a prompt's",
    "mean": "mean",
    "max": "largest",
    "sum": "summed",
    "k1": "ratio",
    "k2": "squared log ratio",
    "k3": "divergence",
}
"""Parts of the names of verl's mismatch rules."""
_WORDS = {
    "loss": {"vanilla": "PPO's clip (vanilla)", "gpg": "policy gradient without a ratio (gpg)"},
    "mismatch weighs": {"token": "each token", "sequence": "each trajectory"},
    "speedup in the reward": {"sum": "itself, capped", "weighted": "whether it is one", "milestone": "by milestones"},
    "PRS": {"True": "on", "False": "off"},
}
WINDOW = 5
"""Largest number of steps over which either end of a run is averaged."""
_TRAINING = {
    "reward": ("critic/score/mean", True),
    "correct rate": ("kernel/correct_rate", False),
    "fast@1.2": ("kernel/fast@1.2", False),
    "fast@1.2, sure": ("kernel/fast@1.2_sure", False),
    "time coverage": ("kernel/time_coverage/mean", False),
    "hack rate": ("kernel/hack_rate", False),
    "novel programs": ("kernel/novel", False),
    "novel programs, by bytes": ("kernel/novel_bytes", False),
    "novel of the correct": ("kernel/novel_correct", False),
    "tasks of a novel best": ("kernel/novel_best", False),
}
_VALIDATION = {
    "reward": "reward",
    "acc": "correct rate, last turn",
    "best_turn_acc": "correct rate, best turn",
    "last_turn_fast@1.2": "fast@1.2, last turn",
    "best_turn_fast@1.2": "fast@1.2, best turn",
    "last_turn_fast@1.2_sure": "fast@1.2 sure, last turn",
    "best_turn_fast@1.2_sure": "fast@1.2 sure, best turn",
    "last_turn_speedup": "speedup, last turn",
    "best_turn_speedup": "speedup, best turn",
    "novel": "novel programs, last turn",
    "novel_bytes": "novel programs by bytes, last turn",
    "novel_correct": "novel of the correct, last turn",
    "best_turn_novel_correct": "novel of the correct, best turn",
    "speedup": "speedup",
    "time_coverage": "time coverage",
}


def run_facts(folder: Path, steps: Sequence[Step]) -> dict[str, str]:
    """Return facts by name, in the order of display; unknown facts are left out."""
    config = RunConfig(folder)
    facts = {"steps": _length(steps, config.text("trainer.total_training_steps"))}
    seconds = [value for _, value in series(steps, "timing_s/step")]
    if seconds:
        facts["training"] = f"{sum(seconds):.0f} s, without start-up and validation before it"
    for name, key in _KEYS.items():
        if (value := config.text(key)) is not None:
            facts[name] = _in_words(name, value)
    return facts


def timing_source(steps: Sequence[Step]) -> str:
    """Return the source of the run's times and speedups."""
    simulated, unvalidated = (
        {share for step in steps if (share := number(step.get(f"kernel/{name}_clock"))) is not None}
        for name in ("simulated", "unvalidated")
    )
    if not simulated:
        return "unknown: no kernel was timed"
    if simulated == {0.0}:
        return "cuda_event: measured on a GPU"
    if any(unvalidated):
        return "simulated_unvalidated: a model of a GPU that was compared with no measurement"
    return "simulated: a model of a GPU, no measurement" if simulated == {1.0} else "mixed: simulated and cuda_event"


def _length(steps: Sequence[Step], planned: str | None) -> str:
    last = steps[-1]["step"] if steps else 0
    if planned is None or not planned.isdigit():
        return str(last)
    return f"{last} of {planned}" + ("" if last >= int(planned) else ", not finished")


def _in_words(name: str, value: str) -> str:
    """Return a value of the configuration in words, if there are words for it."""
    if name != "mismatch rejects by":
        return _WORDS.get(name, {}).get(value, value)
    rules = [[_PARTS.get(part) for part in rule.strip().split("_")] for rule in value.split(",")]
    has_words = all(part is not None for rule in rules for part in rule)
    return f"{' and '.join(' '.join(map(str, rule)) for rule in rules)} ({value})" if has_words else value


@dataclass(frozen=True)
class FigureChange:
    """A figure before and after."""

    name: str
    before: float | None
    after: float | None
    is_factor: bool = False
    """Whether the change is given as a factor; otherwise it is a difference."""

    @property
    def cells(self) -> list[str]:
        """Return name, both values and the change, as text; "-" where one is unknown."""
        values = ["-" if value is None else f"{value:.3f}" for value in (self.before, self.after)]
        return [self.name, *values, self._change()]

    def _change(self) -> str:
        if self.before is None or self.after is None or (self.is_factor and self.before <= 0):
            return "-"
        return f"x {self.after / self.before:.2f}" if self.is_factor else f"{self.after - self.before:+.3f}"


@dataclass(frozen=True)
class Headline:
    """A change as a reader quotes it."""

    name: str
    before: str
    after: str


def headlines(changes: Sequence[FigureChange]) -> list[Headline]:
    """Return the changes whose two ends are known: shares in percent, the reward as it is."""
    return [
        Headline(change.name, _quoted(change.before, change.is_factor), _quoted(change.after, change.is_factor))
        for change in changes
        if change.before is not None and change.after is not None and not change.name.endswith("sure")
    ]


def _quoted(value: float, is_factor: bool) -> str:
    return f"{value:.2f}" if is_factor else f"{value:.0%}"


def window(steps: Sequence[Step]) -> int:
    """Return over how many steps `first_and_last` averages at either end: 5, or half of a shorter run."""
    return min(WINDOW, len(steps) // 2)


def first_and_last(steps: Sequence[Step]) -> list[FigureChange]:
    """Return means over a run's first and last steps; empty if the run has fewer than two."""
    size = window(steps)
    if not size:
        return []
    changes = (
        FigureChange(name, _mean(steps[:size], key), _mean(steps[-size:], key), is_factor)
        for name, (key, is_factor) in _TRAINING.items()
    )
    return [change for change in changes if change.before is not None or change.after is not None]


def answers(folder: Path) -> dict[str, int]:
    """Return the number of answers in each validation of a run by data source; empty where its data cannot be read."""
    config = RunConfig(folder)
    samples = config.text("actor_rollout_ref.rollout.val_kwargs.n") or ""
    if not samples.isdigit():
        return {}
    counts: Counter[str] = Counter()
    for path in config.texts("data.val_files"):
        try:
            counts.update(pq.read_table(path, columns=["data_source"])["data_source"].to_pylist())
        except (OSError, ValueError, pa.ArrowException):  # The report is made without the data.
            return {}
    return {source: count * int(samples) for source, count in counts.items()}


def right_answers(validations: Sequence[Step], counts: Mapping[str, int]) -> Table:
    """Lay out the share of right last turns of the first and the last validation, a row for each data source."""
    steps = [f"step {validation['step']}" for validation in (validations[0], *validations[1:][-1:])]
    table = Table("right answers", "answers", *steps, title="validation by data source", title_justify="left")
    for source in dict.fromkeys(
        key.rpartition("/")[0] for validation in validations for key in validation if key.endswith("/acc")
    ):
        shares = [number(validation.get(f"{source}/acc")) for validation in (validations[0], *validations[1:][-1:])]
        values = ["-" if share is None else f"{share:.3f}" for share in shares]
        table.add_row(source, str(counts.get(source, "-")), *values)
    return table


def before_and_after(validations: Sequence[Step]) -> list[FigureChange]:
    """Compare the first validation with the last, per data source; `after` is unknown if there was only one."""
    if not validations:
        return []
    first, last = validations[0], validations[-1]
    sources = dict.fromkeys(
        key.rpartition("/")[0] for validation in (first, last) for key in validation if key != "step"
    )
    return [
        FigureChange(
            f"{source}: {name}" if len(sources) > 1 else name,
            number(first.get(f"{source}/{figure}")),
            number(last.get(f"{source}/{figure}")) if len(validations) > 1 else None,
        )
        for source in sources
        for figure, name in _VALIDATION.items()
        if f"{source}/{figure}" in first or f"{source}/{figure}" in last
    ]


def changes_table(changes: Sequence[FigureChange], title: str, *ends: str) -> Table:
    """Lay changes out as a table with one row each.

    Args:
        changes: figures.
        title: title of the table.
        ends: headings of the first and the second value; without a second heading there is no column for it.
    """
    heads = ("", *ends, "change") if len(ends) > 1 else ("", *ends)
    table = Table(*heads, title=title, title_justify="left")
    for change in changes:
        table.add_row(*change.cells[: len(heads)])
    return table


def _mean(steps: Sequence[Step], key: str) -> float | None:
    values = [value for step in steps if (value := number(step.get(key))) is not None]
    return sum(values) / len(values) if values else None
