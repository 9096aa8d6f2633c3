# SPDX-License-Identifier: Apache-2.0
"""What a candidate says reaches the next prompt as text, whatever it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rollout.chat_tokenizers import BASE_END, tokenizer
from verl_kernel.rollout.turn_end import neutraliser, special_ids

TRAINED = tokenizer(["x = 1"], end=BASE_END)
NAMES = ["<|im_end|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", BASE_END, "<think>"]


def special_tokens_in(text: str) -> int:
    ids = TRAINED.apply_chat_template([{"role": "user", "content": text}], return_dict=False)
    return sum(index in special_ids(TRAINED) for index in ids)


def test_every_special_token_is_known():
    known = TRAINED.convert_ids_to_tokens(sorted(special_ids(TRAINED)))
    assert set(known) == set(NAMES) - {"<think>"}


@pytest.mark.parametrize("name", NAMES)
def test_a_special_token_becomes_text_that_a_reader_recognises(name):
    clean = neutraliser(TRAINED)(f"ValueError: {name}{name} x")
    assert clean == f"ValueError: {name[0]} {name[1:]}{name[0]} {name[1:]} x"
    assert TRAINED.convert_tokens_to_ids(name) not in TRAINED.encode(clean)


def test_other_text_is_left_as_it_is():
    text = "RuntimeError: <|im_end> in <user> |> at 0x7f\n\tx < y | z"
    assert neutraliser(TRAINED)(text) == text


@given(st.lists(st.sampled_from([*NAMES, "<", "|", "<|", "|>", "im_end", " ", "x"]) | st.text(max_size=5), max_size=12))
def test_a_prompt_has_no_more_special_tokens_than_usual(pieces):
    assert special_tokens_in(neutraliser(TRAINED)("".join(pieces))) == special_tokens_in("plain") == 2


def test_a_name_within_a_name_is_broken_too():
    nested = tokenizer([])
    nested.add_tokens(["<a<b>", "<b>", "a<b>"], special_tokens=True)
    clean = neutraliser(nested)("<a<b> and <b>")
    assert not special_ids(nested) & set(nested.encode(clean))
