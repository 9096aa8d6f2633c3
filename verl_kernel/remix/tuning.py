# SPDX-License-Identifier: Apache-2.0
"""The SFT stage: trains LoRAs and routers on conversations, in one process, step by step and resumable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from verl_kernel.errors import DataError
from verl_kernel.remix.batches import TokenRow, collate, row_losses
from verl_kernel.remix.checkpoint import loss_log, resume, save
from verl_kernel.remix.layers import ReMixPass, Routing
from verl_kernel.remix.loss import remix_loss
from verl_kernel.remix.options import TuningOptions


class Rows(Protocol):
    """Training data: rows by number, and the number of their distinct keys."""

    keys: list[str]

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> TokenRow: ...


def tune(
    model: nn.Module,
    routing: Routing,
    rows: Rows,
    options: TuningOptions,
    folder: Path,
    *,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train until `options.steps`, continuing from the state in `folder`, if any.

    Losses are appended to losses.jsonl after each step; state.pt is written every `save_every` steps and at the end. A
    run that was stopped and resumed ends in the same state as an uninterrupted one.

    Args:
        model: whose layers `apply_remix` has replaced.
        routing: routing of the model.
        rows: training data.
        options: see there.
        folder: created if it is missing.
        on_step: called after each step with its number and its mean loss in nats per token.

    Raises:
        ConfigError: the folder holds a run with other options.
        DataError: there are too few rows for a batch, or a batch without a token to learn.
    """
    if len(rows) - options.held_out < options.batch_size:
        raise DataError(
            f"there are {len(rows)} rows, of which {options.held_out} are held out (remix.tuning.held_out); a batch "
            f"takes {options.batch_size}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    optimizer, fixed = _optimizer(routing, options), _shared_settings(routing, rows, options)
    finished_steps = resume(routing, optimizer, fixed, folder)
    model.train()
    with loss_log(folder, finished_steps) as log:
        for step in range(finished_steps + 1, options.steps + 1):
            optimizer.zero_grad()
            line = {"step": step, **_accumulate(model, routing, rows, options, step)}
            optimizer.step()
            log(line)
            if step % options.save_every == 0 or step == options.steps:
                save(routing, optimizer, fixed, folder, step)
            on_step(step, line["loss"])


def _optimizer(routing: Routing, options: TuningOptions) -> torch.optim.Adam:
    layers = routing.layers.values()
    loras = [weight for layer in layers for weight in (layer.lora_a, layer.lora_b)]
    routers = [layer.router for layer in layers]
    groups: list[dict[str, Any]] = [{"params": loras}, {"params": routers, "lr": options.router_learning_rate}]
    return torch.optim.Adam(groups, lr=options.learning_rate)


def _shared_settings(routing: Routing, rows: Rows, options: TuningOptions) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the stopped one."""
    settings = {**asdict(routing.options), **asdict(options), "keys": rows.keys, "rows": len(rows)}
    free = ("steps", "save_every")
    return {key: value for key, value in settings.items() if key not in free} | {"layers": sorted(routing.layers)}


def _accumulate(model: nn.Module, routing: Routing, rows: Rows, options: TuningOptions, step: int) -> dict[str, Any]:
    """Add the gradients of one step's micro-batches; return the step's log entry."""
    device = next(model.parameters()).device
    batch = [rows[index] for index in _indices(len(rows) - options.held_out, options, step)]
    tokens = sum(int(row.learned[1:].sum()) for row in batch)
    if not tokens:
        raise DataError(f"the rows of step {step} hold no token of an assistant within the maximum length")
    # Two seeds share no stream within a million steps.
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    losses = torch.zeros(options.selections)
    for start in range(0, len(batch), options.micro_batch_size):
        part = collate(batch[start : start + options.micro_batch_size], len(rows.keys)).to(device)
        loss, per_row = remix_loss(
            routing,
            lambda part=part: row_losses(model, part, tokens),  # type: ignore[misc]
            options.selections,
            prompt=part.prompt,
            keys=part.keys,
            generator=generator,
        )
        loss.backward()  # type: ignore[no-untyped-call]
        losses += per_row.sum(1).cpu()
    return {"loss": losses.mean().item(), "spread": losses.std().item(), "tokens": tokens}


def _indices(count: int, options: TuningOptions, step: int) -> list[int]:
    """Return the rows of a step: every epoch is a new permutation, without its incomplete last batch."""
    epoch, batch_index = divmod(step - 1, count // options.batch_size)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(options.seed * 1_000_003 + epoch))
    return order[batch_index * options.batch_size : (batch_index + 1) * options.batch_size].tolist()


@torch.no_grad()
def measure(model: nn.Module, routing: Routing, rows: Rows, options: TuningOptions) -> tuple[float, list[ReMixPass]]:
    """Return the held-out rows' loss in nats per token with the routers' top-k, and the choices made for them."""
    model.eval()
    device = next(model.parameters()).device
    indices = range(len(rows) - options.held_out, len(rows))
    loss, tokens, runs = 0.0, 0, []
    for start in range(0, len(indices), options.micro_batch_size):
        part = [rows[index] for index in indices[start : start + options.micro_batch_size]]
        batch = collate(part, len(rows.keys)).to(device)
        with routing.run("topk", prompt=batch.prompt, keys=batch.keys) as run:
            loss += row_losses(model, batch, 1).sum().item()
        tokens += int(batch.learned[:, 1:].sum())
        runs.append(run)
    return loss / max(tokens, 1), runs
