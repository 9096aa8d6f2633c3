# SPDX-License-Identifier: Apache-2.0
"""Small modules with ReMix layers."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from verl_kernel.remix.layers import Routing, apply_remix
from verl_kernel.remix.options import ReMixOptions

SIZES = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": True, "pad_token_id": 0,
    "eos_token_id": 1, "bos_token_id": None,
}  # fmt: skip


def options(**changes: object) -> ReMixOptions:
    return ReMixOptions(**{"loras": 4, "chosen": 2, "rank": 2, "router": "layer", **changes})


class Chain(nn.Module):
    """Two linear layers with a nonlinearity between them, in float64."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.one, self.two = (nn.Linear(width, width, dtype=torch.float64) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x)))


def fill(routing: Routing, scale: float = 0.5) -> None:
    """Give all that is trained random values: at its start a layer answers as its base does."""
    with torch.no_grad():
        for layer in routing.layers.values():
            for weight in (layer.lora_a, layer.lora_b, layer.router):
                weight.normal_(std=scale)


def chain(seed: int = 0, **changes: object) -> tuple[Chain, Routing]:
    torch.manual_seed(seed)
    model = Chain()
    routing = apply_remix(model, options(**changes), targets=("one", "two"))
    fill(routing)
    return model, routing


def language_model(kind: str = "qwen3", seed: int = 0) -> Qwen3ForCausalLM | LlamaForCausalLM:
    torch.manual_seed(seed)
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2))
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8, initializer_range=0.2))
