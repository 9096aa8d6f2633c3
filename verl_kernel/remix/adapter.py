# SPDX-License-Identifier: Apache-2.0
"""Exports a fixed choice of LoRAs as one ordinary LoRA, in the files that PEFT and verl read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from verl_kernel.errors import ConfigError
from verl_kernel.remix.layers import Choice, ReMixPass, Routing, top
from verl_kernel.remix.options import NO_ROWS


def prompt_choice(routing: Routing, key: torch.Tensor) -> dict[str, list[int]]:
    """Return each layer's top-k LoRAs for a prompt's key, (D,), as the mode `topk` would choose them.

    Raises:
        ConfigError: the routers read their layers' inputs, so keys do not determine the choice.
    """
    if routing.options.router != "prompt":
        raise ConfigError("remix.router is layer, whose choice differs with the hidden states: no key decides it")
    chosen = {}
    for name, layer in routing.layers.items():
        logits = torch.nn.functional.linear(key.to(layer.router), layer.router.detach())
        chosen[name] = sorted(top(logits, routing.options.chosen).tolist())
    return chosen


def common_choice(runs: Sequence[ReMixPass]) -> tuple[dict[str, list[int]], float]:
    """Return each layer's subset that most rows chose, and the share of all (row, layer) pairs that chose it.

    Raises:
        ConfigError: there are no runs to count.
    """
    if not runs:
        raise ConfigError(NO_ROWS)
    agree, pairs, chosen = 0, 0, {}
    for name in runs[0].selections:
        subsets, counts = torch.unique(
            torch.cat([run.selections[name].gates for run in runs]), dim=0, return_counts=True
        )
        commonest = int(counts.argmax())
        chosen[name] = subsets[commonest].nonzero().flatten().tolist()
        agree, pairs = agree + int(counts[commonest]), pairs + int(counts.sum())
    return chosen, agree / pairs


def export(routing: Routing, choice: Choice, folder: Path, base_model: str = "") -> None:
    """Write the chosen LoRAs as one PEFT adapter of rank k r, whose outputs are those of the mode `fixed`.

    lora_A stacks the chosen A vertically, lora_B the chosen B, times omega, horizontally, and alpha is the
    rank, so that PEFT scales by one. verl loads the folder by `actor_rollout_ref.model.lora_adapter_path`.

    Args:
        routing: routing of the model.
        choice: for every layer, the LoRAs to write.
        folder: created if it is missing.
        base_model: origin of the frozen model; noted in adapter_config.json.

    Raises:
        ConfigError: the choice leaves out a layer, or does not name k different LoRAs of it.
    """
    from peft import LoraConfig
    from safetensors.torch import save_file

    options, weights = routing.options, {}
    for name, layer in routing.layers.items():
        columns = _columns(routing, name, choice.get(name, ()))
        stem = f"base_model.model.{name}"
        weights[f"{stem}.lora_A.weight"] = layer.lora_a.detach()[columns].cpu().contiguous()
        weights[f"{stem}.lora_B.weight"] = (options.omega * layer.lora_b.detach()[:, columns]).cpu().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    rank = options.chosen * options.rank
    LoraConfig(
        r=rank,
        lora_alpha=rank,
        target_modules=sorted({name.rpartition(".")[2] for name in routing.layers}),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base_model,
        inference_mode=True,
    ).save_pretrained(str(folder))


def _columns(routing: Routing, name: str, chosen: Sequence[int]) -> list[int]:
    options = routing.options
    if len(set(chosen)) != options.chosen or not all(0 <= lora < options.loras for lora in chosen):
        raise ConfigError(
            f"the choice for {name} is {list(chosen)}; it must be {options.chosen} different numbers below "
            f"{options.loras}"
        )
    return [lora * options.rank + row for lora in chosen for row in range(options.rank)]
