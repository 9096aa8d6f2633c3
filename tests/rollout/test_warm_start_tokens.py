# SPDX-License-Identifier: Apache-2.0
"""The warm start and the rollout must see the same tokens: AutoTokenizer's, merged turn by turn by verl."""

import pytest
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from verl_kernel.quickstart.options import WarmStart
from verl_kernel.quickstart.warm_start import build_model
from verl_kernel.world.talks import call_text
from verl_kernel.world.tokenizer import encode_conversation, train_tokenizer

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
