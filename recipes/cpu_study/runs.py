# SPDX-License-Identifier: Apache-2.0
"""Runs a study: each run in a separate folder; finished runs are skipped, and the remaining time is estimated.

OUT/<arm>-<seed>/   train.log, metrics.jsonl, and run.json once the run has finished
OUT/study.jsonl     a line per run and step: the metrics that the study compares, and the run's origin
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.cpu_study.best_of_n import TOKENS, affordable, best_of_n, read_samples, spent
from recipes.cpu_study.comparisons import PREFIX
from recipes.cpu_study.held_out import held_out
from recipes.cpu_study.origin import code_origin, of_record, run_origin, splits
from recipes.cpu_study.plan import Arm, Run, Study
from verl_kernel.errors import DataError, InfraError
from verl_kernel.reporting.steps import number, read_steps

Trainer = Callable[[Path, list[str]], int]
"""Runs a command with its output and metrics in a folder; returns its exit code."""
KEPT = (
    "critic/score/mean",
    "kernel/correct_rate",
    "kernel/fast@1.2",
    "kernel/time_coverage/mean",
    "kernel/speedup/mean",
    "kernel/hack_rate",
    "kernel/simulated_clock",
    "prs/rejected_fraction",
    "groups/zero_gradient_fraction",
    "actor/entropy",
    "actor/grad_norm",
    "rsft/accepted",
    TOKENS,
    "timing_s/step",
)
"""Metrics in a line of `study.jsonl`, in addition to every `kernel/turn_<k>/` correct rate and reward."""


def finished(run: Run, out: Path) -> dict[str, Any] | None:
    """Return the record of a run if it has already finished with its present plan."""
    try:
        record: dict[str, Any] = json.loads((out / run.name / "run.json").read_text())
    except (OSError, ValueError):
        return None
    return record if record.get("fingerprint") == run.fingerprint else None


def minutes_left(study: Study, out: Path, chosen: Sequence[Run] | None = None) -> float:
    """Return the minutes that the remaining runs (all or `chosen`) will take, estimated from finished ones if any."""
    records = [finished(run, out) for run in (study.runs() if chosen is None else chosen)]
    spent = [record["seconds"] / 60 for record in records if record is not None]
    return records.count(None) * (statistics.fmean(spent) if spent else study.minutes)


def execute(run: Run, out: Path, train: Trainer) -> None:
    """Train a run and record that it has finished.

    Raises:
        InfraError: the trainer failed, or ended before its last step.
        DataError: the configuration in its folder, or the data that it names, cannot be read.
    """
    folder = out / run.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").unlink(missing_ok=True)
    start, made = time.monotonic(), code_origin()
    where = folder.resolve()
    kept = [
        f"hydra.run.dir={where}",
        f"trainer.default_local_dir={where}/checkpoints",
        f"trainer.rollout_data_dir={where}/rollouts",
        f"trainer.validation_data_dir={where}/validation",
    ]
    if run.trained is not None:
        weights = where.parent / run.trained.name / "checkpoints" / f"global_step_{run.trained.last}"
        kept += ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={weights}"]
    code = train(folder, [*run.command, *kept])
    seconds = round(time.monotonic() - start, 1)
    steps = len(read_steps(folder / "metrics.jsonl")) if code == 0 else 0
    if code != 0 or steps != run.steps:
        raise InfraError(
            f"run {run.name} ended with exit code {code} and {steps} of {run.steps} steps: see "
            f"{folder / 'train.log'}; the same command goes on with the runs that are missing"
        )
    record = {"fingerprint": run.fingerprint, "overrides": run.overrides, "seconds": seconds, **made}
    record |= run_origin(folder)
    (folder / "run.json").write_text(json.dumps(record, indent=2) + "\n")


def collect(study: Study, out: Path) -> list[dict[str, Any]]:
    """Gather the metrics of finished runs, a row per run and step, and store them in `study.jsonl`."""
    records = [(run, finished(run, out)) for run in study.runs()]
    rows = [row for run, record in records if record for row in _rows(run, out / run.name, of_record(record))]
    done = {(run.arm.name, run.seed): of_record(record) for run, record in records if record}
    rows += [row for arm in study.arms if arm.answers for row in _best_of_n(arm, done, out)]
    write_rows(rows, out / "study.jsonl")
    return rows


def write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows as JSON lines; create the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read what `write_rows` wrote.

    Raises:
        DataError: the file cannot be read, or a line is not a row of a study.
    """
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as exc:
        raise DataError(f"{path} cannot be read as a study's rows ({exc}); name a study.jsonl") from exc
    for line, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not {"arm", "seed", "step"} <= row.keys():
            raise DataError(f"{path}, line {line}: a study's row has arm, seed and step; name a study.jsonl")
    return rows


def _rows(run: Run, folder: Path, made: dict[str, str]) -> list[dict[str, Any]]:
    """Return a row per step, with the figures of its validation if there was one.

    A run that only validates has a single row, of step 0.
    """
    rows = [
        {"arm": run.arm.name, "seed": run.seed, "step": step["step"], **made, **_kept(step)}
        for step in read_steps(folder / "metrics.jsonl")
    ]
    rows = rows or [{"arm": run.arm.name, "seed": run.seed, "step": 0, **made}]
    paths = {int(path.stem): path for path in (folder / "validation").glob("*.jsonl")}
    split = splits(folder) if paths else {}
    for row in rows if run.steps else rows[:1]:
        if path := paths.get(row["step"] if run.steps else max(paths, default=0)):
            row |= {f"{PREFIX}{name}": round(value, 5) for name, value in held_out(path, split).items()}
    return rows


def _best_of_n(arm: Arm, done: Mapping[tuple[str, int], dict[str, str]], out: Path) -> list[dict[str, Any]]:
    """Return a row for each seed for which the arm's answers, and the run whose cost they may have, are finished."""
    rows = []
    for seed in sorted(seed for name, seed in done if name == arm.answers and (arm.cost_of, seed) in done):
        drawn = out / f"{arm.answers}-{seed}"
        samples = read_samples(drawn / "validation" / "0.jsonl")
        n = affordable(samples, spent(out / f"{arm.cost_of}-{seed}"))
        found = {f"{PREFIX}{name}": round(value, 5) for name, value in best_of_n(samples, n, splits(drawn)).items()}
        rows.append({"arm": arm.name, "seed": seed, "step": 0, **done[arm.answers, seed], "n": n, **found})
    return rows


def _kept(step: dict[str, Any]) -> dict[str, float]:
    turns = [key for key in step if key.startswith("kernel/turn_") and key.endswith(("/correct_rate", "/reward/mean"))]
    return {key: round(known, 5) for key in (*KEPT, *sorted(turns)) if (known := number(step.get(key))) is not None}
