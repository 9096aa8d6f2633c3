# SPDX-License-Identifier: Apache-2.0
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generated import draw_conversation, draw_tasks
from verl_kernel.generated_tasks.tokenizer import END, ROLES, encode_conversation, train_tokenizer


@cache
def corpus():
    return [draw_conversation(program, Random(1)) for program in draw_tasks(60, Random(0))]


def train(size=1024):
    return train_tokenizer((message["content"] for talk in corpus() for message in talk), size)


@pytest.fixture(scope="module")
def tokenizer():
    return train()


def test_same_corpus_gives_the_same_tokenizer(tokenizer):
    assert train().backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_round_trips(tokenizer, text):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_chat_template_is_prefix_stable(tokenizer):
    for talk in corpus()[:20]:
        previous = []
        for count in range(1, len(talk) + 1):
            ids = tokenizer.apply_chat_template(talk[:count], tokenize=True, return_dict=False)
            assert ids[: len(previous)] == previous
            previous = ids
            prompt = tokenizer.apply_chat_template(talk[:count], add_generation_prompt=True, return_dict=False)
            assert prompt[:-1] == ids


def test_encoding_is_the_templates_and_targets_are_the_answers(tokenizer):
    for talk in corpus()[:20]:
        ids, targets = encode_conversation(tokenizer, talk)
        assert ids == tokenizer.apply_chat_template(talk, tokenize=True, return_dict=False)
        answers = "".join(message["content"] + END for message in talk if message["role"] == "assistant")
        assert tokenizer.decode([token for token, wanted in zip(ids, targets, strict=True) if wanted]) == answers
        assert tokenizer.decode([ids[0]]) == ROLES["user"]
        assert tokenizer.eos_token == END


def test_a_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert (loaded.eos_token_id, loaded.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    for talk in corpus()[:5]:
        first, second = (one.apply_chat_template(talk, return_dict=False) for one in (tokenizer, loaded))
        assert first == second
