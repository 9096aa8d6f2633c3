# SPDX-License-Identifier: Apache-2.0
"""The model before its warm start, and the rows of its training."""

from math import log
from random import Random
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from verl_kernel.generated_tasks.conversations import call_text
from verl_kernel.generated_tasks.tokenizer import encode_conversation, train_tokenizer
from verl_kernel.quickstart.options import Quickstart, WarmStart
from verl_kernel.quickstart.sft_rows import group_by_length
from verl_kernel.quickstart.warm_start import build_model

SEEN, REPEATED = 40, 10


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a text"], 640)


def surprise(model, seed):
    """Return the mean negative log-probability, in nats, of tokens that repeat some of those before them."""
    rng = Random(seed)
    tokens = rng.sample(range(len(model.model.embed_tokens.weight)), SEEN)
    start = rng.randrange(SEEN - REPEATED)
    ids = torch.tensor([tokens + tokens[start : start + REPEATED]])
    with torch.no_grad():
        log_probs = model(input_ids=ids).logits[0].log_softmax(-1)
    return -log_probs[SEEN:-1].gather(1, ids[0, SEEN + 1 :, None]).mean().item()


@pytest.mark.parametrize(
    "sizes", [{}, {"layers": 2, "width": 64, "heads": 2}, {"width": 192, "heads": 6}, {"kv_heads": 4}]
)
def test_an_untrained_model_continues_what_it_has_seen(tokenizer, sizes):
    model = build_model(WarmStart(**sizes), tokenizer, 0)
    assert sum(surprise(model, seed) for seed in range(8)) / 8 < log(len(tokenizer)) - 0.7


def test_random_weights_do_not_continue_it(tokenizer):
    from transformers import Qwen3ForCausalLM

    model = Qwen3ForCausalLM(build_model(WarmStart(), tokenizer, 0).config)
    assert sum(surprise(model, seed) for seed in range(8)) / 8 > log(len(tokenizer)) - 0.7


def test_all_weights_of_the_smallest_model_are_finite(tokenizer):
    model = build_model(WarmStart(layers=2, width=16, heads=2, head_dim=16), tokenizer, 0)
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_two_seeds_give_two_models(tokenizer):
    models = [build_model(WarmStart(layers=2), tokenizer, seed) for seed in (0, 1)]
    first, second = (model.model.layers[1].self_attn.q_proj.weight for model in models)
    assert not torch.equal(first, second)


class Tokenizer(SimpleNamespace):
    def __len__(self):
        return Quickstart().vocabulary


def test_the_model_has_0_82_million_parameters():
    tokenizer = Tokenizer(eos_token_id=0, pad_token_id=0)
    assert build_model(Quickstart().warm_start, tokenizer, 0).num_parameters() == 820_288


def test_the_sft_trainers_batches_hold_rows_of_similar_length():
    from torch.utils.data import DistributedSampler

    rng = Random(0)
    lengths = [rng.randrange(100, 500) for _ in range(101)]
    order = group_by_length(lengths, 4, Random(1))
    assert len(order) == len(set(order)) == 100
    # As verl.trainer.sft_trainer draws them.
    drawn = list(DistributedSampler(order, num_replicas=1, rank=0, shuffle=True, drop_last=True))
    batches = [[lengths[order[place]] for place in drawn[start : start + 4]] for start in range(0, 100, 4)]
    assert sum(4 * max(batch) - sum(batch) for batch in batches) < 0.15 * sum(lengths)
    assert order != group_by_length(lengths, 4, Random(2))
    means = [sum(batch) for batch in batches]
    assert means != sorted(means)


TALK = [
    {"role": "user", "content": "Write a kernel.\n```python\nx = x * 2.0\n```"},
    {"role": "assistant", "content": "Here.\n```python\nx = 1\n```"},
    {"role": "user", "content": "Verdict: ok\nSpeedup: 2.00x"},
    {"role": "assistant", "content": "Better.\n```python\nx = 2\n```"},
]
TOOL_TALK = [
    TALK[0], {"role": "assistant", "content": f"{TALK[1]['content']}\n{call_text('run')}"},
    {"role": "tool", "content": TALK[2]["content"]}, TALK[3],
]  # fmt: skip


@pytest.mark.parametrize("talk", [TALK, TOOL_TALK])
def test_the_rollout_reads_what_the_warm_start_wrote(talk, tmp_path):
    trained = train_tokenizer([message["content"] for message in talk] * 4, 400)
    build_model(WarmStart(layers=2, width=64, heads=2), trained, seed=0).save_pretrained(tmp_path)
    trained.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    builder = create_continuous_token_builder(loaded, hf_model_type="qwen3")
    expected, _ = encode_conversation(trained, talk)
    ids = builder.build_initial_tokens(talk[:1])
    for turn in (1, 3):
        answer = [*loaded.encode(talk[turn]["content"], add_special_tokens=False), loaded.eos_token_id]
        ids = builder.merge_assistant_tokens(ids, answer).token_ids
        if turn == 1:
            ids = builder.merge_context_tokens(talk[:2], talk[:3], ids).token_ids
    assert ids == expected[: len(ids)]
    assert loaded.decode(expected[len(ids) :]) == "\n"
