# SPDX-License-Identifier: Apache-2.0
"""`python -m recipes.cpu_study.audit --out DIR`: what each estimator's first step would gain, from the same rollouts.

OUT/rollouts/, OUT/held_out/    a file for each group, unless --rollouts names those of a training
OUT/audit.jsonl                 a line for each estimator, and the share of the noise that negatives bring
OUT/audit.md                    the same as a table
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_kernel.commands.sentences import guarded
from verl_kernel.data.files import writing_folder
from verl_kernel.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from recipes.cpu_study.audit.rollouts import Group

app = typer.Typer(add_completion=False)
_SUM = "seq-mean-token-sum-norm"
_FAR = 0.02
"""Nats a token by which a model may be off what sampled: where both are float32, they agree to about 1e-4."""


@app.command()
@guarded
def command(
    out: Annotated[Path, typer.Option(help="Folder for rollouts and figures; a stopped audit goes on.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Hydra overrides of the recipe.")] = None,
    recipe: Annotated[str, typer.Option(help="Recipe whose rollouts, step and rate are meant.")] = "cpu_quickstart",
    groups: Annotated[int, typer.Option(help="Tasks that are drawn, each answered rollout.n times.")] = 40,
    held_out: Annotated[
        Path | None, typer.Option(help="Parquet file of as many other tasks, whose P(right) counts.")
    ] = None,
    rollouts: Annotated[
        Path | None, typer.Option(help="Folder of a training's samples (sampler_kwargs.record_dir), in their place.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of tasks, samples, steps and intervals.")] = 0,
) -> None:
    """Sample groups once, and compare the gradients that every estimator makes of them."""
    from verl_kernel.preflight.composing import compose

    config = compose(recipe, overrides or [])
    _check(config, groups, rollouts, held_out)
    with writing_folder(out):
        audit = _Audit(config, out, seed)
        trained = audit.read(rollouts) if rollouts else audit.sampled(_train_file(config), groups, out / "rollouts")
        held_out_groups = audit.sampled(held_out, groups, out / "held_out") if held_out else ()
        audit.compare(trained, held_out_groups)


def _check(config: DictConfig, groups: int, rollouts: Path | None, held_out: Path | None) -> None:
    """Refuse what cannot be audited before torch is imported."""
    actor, step = config.actor_rollout_ref.actor, config.data.train_batch_size
    if actor.loss_agg_mode != _SUM:
        raise ConfigError(
            f"actor_rollout_ref.actor.loss_agg_mode is {actor.loss_agg_mode}, but the audit sums tokens up: leave it "
            f"at {_SUM}"
        )
    if rollouts is None and groups < 2 * step:
        raise ConfigError(
            f"--groups is {groups} and a step has {step} (data.train_batch_size): ask for at least {2 * step}, so that "
            "there are groups outside of a step"
        )
    model = Path(config.actor_rollout_ref.model.path)
    if not (model / "config.json").is_file():
        raise ConfigError(
            f"actor_rollout_ref.model.path is {model}, which holds no config.json: `verl-kernel data quickstart` makes "
            "one, and quickstart_dir=FOLDER names another"
        )
    for data in [held_out] if rollouts else [_train_file(config), held_out]:
        if data is not None and not data.is_file():
            raise ConfigError(
                f"{data} does not exist: name a parquet file of tasks, as `verl-kernel data quickstart` writes one"
            )


def _train_file(config: DictConfig) -> Path:
    files = config.data.train_files
    return Path(files if isinstance(files, str) else files[0])


@dataclass
class _Audit:
    config: DictConfig
    out: Path
    seed: int

    def __post_init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.path = self.config.actor_rollout_ref.model.path
        self.model: Any = AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32).eval()
        self.temperature = float(self.config.actor_rollout_ref.rollout.temperature)

    def sampled(self, data: Path, groups: int, folder: Path) -> list[Group]:
        """Sample the groups that are missing in a folder, and return all."""
        from transformers import AutoTokenizer

        from recipes.cpu_study.audit.rollouts import read_groups
        from recipes.cpu_study.audit.sampling import SamplingPlan, sample

        plan = SamplingPlan(self.config, data, groups, self.seed, folder)
        sample(plan, self.model, AutoTokenizer.from_pretrained(self.path), typer.echo)
        return read_groups(folder)[:groups]

    def read(self, folder: Path) -> list[Group]:
        """Return the groups of a training.

        Raises:
            DataError: there are none.
            ConfigError: other weights have sampled them, or there are too few.
        """
        from recipes.cpu_study.audit.gradients import distance
        from recipes.cpu_study.audit.rollouts import read_groups

        groups, step = read_groups(folder), self.config.data.train_batch_size
        if len(groups) < 2 * step:
            raise ConfigError(
                f"{folder} holds {len(groups)} groups and a step has {step} (data.train_batch_size): let the training "
                "keep more steps, at a rate near 0 (actor_rollout_ref.actor.optim.lr=1e-12)"
            )
        for group in groups:
            far = distance(self.model, group, self.temperature)
            if far is not None and far > _FAR:
                raise ConfigError(
                    f"{folder} holds rollouts that other weights than {self.path} have sampled: "
                    f"their log-probabilities are {far:.2g} apart; let the training keep samples at a rate "
                    "near 0 (actor_rollout_ref.actor.optim.lr=1e-12)"
                )
        return groups

    def compare(self, trained: list[Group], held_out: list[Group] | tuple[()]) -> None:
        """Write and print the figures."""
        from recipes.cpu_study.audit.arms import goal, weights
        from recipes.cpu_study.audit.gradients import group_gradients
        from recipes.cpu_study.audit.report import GOALS, StepSettings, negatives_share, rows, table

        groups = [*trained, *held_out]
        of_each = weights(groups) | {name: goal(groups, turn) for name, turn in GOALS.items()}
        done = iter(range(1, len(groups) + 1))

        def note() -> None:
            if (number := next(done)) % 8 == 0 or number == len(groups):
                typer.echo(f"gradients of {number} of {len(groups)} groups")

        gradients = group_gradients(self.model, groups, of_each, self.temperature, note)
        rate = float(self.config.actor_rollout_ref.actor.optim.lr)
        settings = StepSettings(self.config.data.train_batch_size, rate, self.seed)
        is_trained = [number < len(trained) for number in range(len(groups))]
        is_target = [number >= len(trained) for number in range(len(groups))] if held_out else is_trained
        figures = rows(gradients, is_trained, is_target, settings)
        share = negatives_share(gradients, is_trained, self.seed)
        lines = [
            *figures,
            {"negatives' share of TRLOO's noise": share, "groups": len(trained), "held_out": len(held_out)},
        ]
        (self.out / "audit.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        text = table(figures, share, settings.step)
        (self.out / "audit.md").write_text(text, encoding="utf-8")
        typer.echo(text, nl=False)
