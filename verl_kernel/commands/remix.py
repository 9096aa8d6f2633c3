# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel remix`: fine-tune a model on conversations with ReMix and write the result as PEFT adapters."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verl_kernel.errors import ConfigError, DataError
from verl_kernel.remix.options import NO_ROWS, ReMixOptions, TuningOptions

if TYPE_CHECKING:
    from verl_kernel.remix.layers import ReMixPass, Routing

_SHAPE, _TUNING = ReMixOptions(), TuningOptions()


def command(
    *,
    data: Annotated[Path, typer.Option(help="Conversations: parquet with a column `messages`.")],
    model: Annotated[Path, typer.Option(help="Folder of the model, in the form of Hugging Face.")],
    out: Annotated[Path, typer.Option(help="Folder for adapters, losses and state; a stopped run continues.")],
    loras: Annotated[int, typer.Option(help="LoRAs beside every target layer (n).")] = _SHAPE.loras,
    chosen: Annotated[int, typer.Option(help="LoRAs that a row uses (k).")] = _SHAPE.chosen,
    rank: Annotated[int, typer.Option(help="Rank of one LoRA (r); adapters have rank k r.")] = _SHAPE.rank,
    scale: Annotated[str, typer.Option(help="lora: weight 2/(k r); rslora: 2/sqrt(k r).")] = _SHAPE.scale,
    router: Annotated[
        str, typer.Option(help="layer: the paper's; prompt: one choice per key, an exact adapter.")
    ] = _SHAPE.router,
    key_column: Annotated[
        str | None, typer.Option(help="Column with a key for --router prompt; one adapter for each.")
    ] = None,
    target: Annotated[list[str] | None, typer.Option(help="Last part of the layers' names; may be repeated.")] = None,
    selections: Annotated[int, typer.Option(help="Selections of each step (M), 2 or more.")] = _TUNING.selections,
    steps: Annotated[int, typer.Option(help="Optimizer steps in all.")] = _TUNING.steps,
    batch_size: Annotated[int, typer.Option(help="Rows of an optimizer step.")] = _TUNING.batch_size,
    micro_batch_size: Annotated[int | None, typer.Option(help="Rows of a forward pass; all if not given.")] = None,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of the LoRAs.")] = _TUNING.learning_rate,
    router_learning_rate: Annotated[float, typer.Option(help="That of the routers.")] = _TUNING.router_learning_rate,
    max_length: Annotated[int, typer.Option(min=2, help="Longest row in tokens; longer rows are cut.")] = 2048,
    held_out: Annotated[int, typer.Option(help="Rows at the end that only measure the loss.")] = _TUNING.held_out,
    save_every: Annotated[int, typer.Option(help="Steps between two saved states.")] = _TUNING.save_every,
    seed: Annotated[int, typer.Option(help="Seed of initial values, order and selections.")] = _TUNING.seed,
    gradient_checkpointing: Annotated[bool, typer.Option(help="Recompute activations to save memory.")] = False,
) -> None:
    """Train LoRAs and their router on conversations, then write PEFT adapters that verl can train on."""
    shape = ReMixOptions(loras=loras, chosen=chosen, rank=rank, scale=scale, router=router)  # type: ignore[arg-type]
    tuning = TuningOptions(
        steps=steps,
        batch_size=batch_size,
        micro_batch_size=micro_batch_size or batch_size,
        selections=selections,
        learning_rate=learning_rate,
        router_learning_rate=router_learning_rate,
        seed=seed,
        held_out=held_out,
        save_every=save_every,
    )
    _check_router(shape, tuning, key_column)
    from verl_kernel.data.files import writing_folder

    _check_files(data, model, key_column)
    with writing_folder(out):
        _run(
            data,
            model,
            out,
            shape,
            tuning,
            key_column=key_column,
            targets=target,
            max_length=max_length,
            gradient_checkpointing=gradient_checkpointing,
        )


def _check_router(shape: ReMixOptions, tuning: TuningOptions, key_column: str | None) -> None:
    """Refuse a key that the paper's router does not read, and no rows to choose its adapter by, before it trains."""
    if shape.router == "layer" and key_column is not None:
        raise ConfigError(
            f"--key-column is {key_column!r} and --router is layer, which reads no key: leave it out, or set --router "
            "prompt"
        )
    if shape.router == "layer" and not tuning.held_out:
        raise ConfigError(NO_ROWS)


def _check_files(data: Path, model: Path, key_column: str | None) -> None:
    """Refuse unusable data and models before torch is imported."""
    from verl_kernel.data.files import column_names

    advice = "name a parquet file of conversations, as `verl-kernel data talks` or `data coldstart` writes one"
    if not data.is_file():
        raise DataError(f"--data {data} {'is a folder' if data.is_dir() else 'does not exist'}: {advice}")
    columns = column_names(data, advice)
    for column in ("messages", key_column):
        if column is not None and column not in columns:
            raise DataError(f"{data} has no column {column!r}; it has {', '.join(columns)}: {advice}")
    if not (model / "config.json").is_file():
        raise ConfigError(f"--model {model} holds no config.json: name the folder of a model as Hugging Face saves one")


def _run(
    data: Path,
    folder: Path,
    out: Path,
    shape: ReMixOptions,
    tuning: TuningOptions,
    *,
    key_column: str | None,
    targets: list[str] | None,
    max_length: int,
    gradient_checkpointing: bool,
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from verl_kernel.remix.batches import Talks
    from verl_kernel.remix.layers import FEED_FORWARD, apply_remix
    from verl_kernel.remix.tuning import measure, tune

    torch.manual_seed(tuning.seed)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    rows = Talks(data, AutoTokenizer.from_pretrained(folder), max_length, key_column)
    routing = apply_remix(model, shape, targets or FEED_FORWARD, len(rows.keys))
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    if gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    before, _ = measure(model, routing, rows, tuning)

    def print_loss(step: int, loss: float) -> None:
        typer.echo(f"step {step}/{tuning.steps} loss {loss:.4f}")

    tune(model, routing, rows, tuning, out, on_step=print_loss)
    after, runs = measure(model, routing, rows, tuning)
    _report(out, shape, tuning, (before, after), _export(routing, rows.keys, runs, out, str(folder)))


def _report(
    out: Path, shape: ReMixOptions, tuning: TuningOptions, losses: tuple[float, float], adapters: dict[str, Any]
) -> None:
    """Write remix.json and report the results; `losses` are those of the held-out rows, before and after."""
    before, after = losses
    held_out = {"base": before, "top_k": after} if tuning.held_out else None
    summary = {"held_out_loss": held_out, "adapters": adapters, **asdict(shape), **asdict(tuning)}
    (out / "remix.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if tuning.held_out:
        typer.echo(f"held-out loss {before:.4f} before, {after:.4f} with the router's choice")
    for path, about in adapters.items():
        typer.echo(f"{out / path}: rank {shape.chosen * shape.rank}, {about['says']}")


def _export(routing: Routing, keys: list[str], runs: list[ReMixPass], out: Path, base: str) -> dict[str, Any]:
    """Write one adapter for each key, or for a router of the kind `layer` the one that most rows would choose."""
    import torch

    from verl_kernel.remix.adapter import common_choice, export, prompt_choice

    if routing.options.router == "layer":
        choice, share = common_choice(runs)
        export(routing, choice, out / "adapter", base)
        says = f"the choice of {share:.0%} of the held-out rows' layers; no single adapter is exact for this router"
        return {"adapter": {"choice": choice, "says": says}}
    adapters = {}
    for number, key in enumerate(keys):
        choice = prompt_choice(routing, torch.eye(len(keys))[number])
        path = "adapter" if len(keys) == 1 else f"adapter_{number}"
        export(routing, choice, out / path, base)
        adapters[path] = {"key": key, "choice": choice, "says": f"exact for the key {key!r}"}
    return adapters
