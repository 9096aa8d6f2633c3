# SPDX-License-Identifier: Apache-2.0
"""Where a turn ends, and that nothing a candidate says ends one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rollout.chat_tokenizers import BASE_END, GLM_TEMPLATE, PLAIN_TEMPLATE, tokenizer
from verl_kernel.errors import ConfigError
from verl_kernel.generated_tasks.tokenizer import CHAT_TEMPLATE
from verl_kernel.reward.turn_end import TurnEnd, find_turn_end, neutraliser, special_ids, stop_ids

LAST_ONLY = PLAIN_TEMPLATE.replace("assistant: ' }}{% endif", "assistant: ' }}{% else %}{{ eos_token }}{% endif")
GLM_ENDED = GLM_TEMPLATE + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
"""The end of a sequence stands behind the last message alone."""


@pytest.mark.parametrize(("template", "sequence_end", "turn_end", "opens_next"), [
    (CHAT_TEMPLATE, "<|im_end|>", "<|im_end|>", False), (CHAT_TEMPLATE, BASE_END, "<|im_end|>", False),
    (CHAT_TEMPLATE.replace("<|im_end|>", "\n<think></think><|im_end|>"), BASE_END, "<|im_end|>", False),
    (GLM_TEMPLATE, BASE_END, "<|user|>", True), (GLM_ENDED, BASE_END, "<|user|>", True),
])  # fmt: skip
def test_the_templates_end_is_found_whatever_ends_a_sequence(template, sequence_end, turn_end, opens_next):
    trained = tokenizer([], template, sequence_end)
    behind = () if opens_next else tuple(trained.encode("\n"))
    assert find_turn_end(trained) == TurnEnd(trained.convert_tokens_to_ids(turn_end), opens_next, behind)


def test_nothing_follows_the_last_messages_own_end():
    trained = tokenizer(
        [], CHAT_TEMPLATE.replace("{% if add", "{% if not add_generation_prompt %}.{% endif %}{% if add")
    )
    assert find_turn_end(trained).behind == ()


def test_the_templates_options_are_heard():
    trained = tokenizer([], "{% if brief %}" + GLM_TEMPLATE + "{% else %}" + CHAT_TEMPLATE + "{% endif %}")
    assert not find_turn_end(trained).opens_next
    assert find_turn_end(trained, {"brief": True}).opens_next


@pytest.mark.parametrize("template", [None, PLAIN_TEMPLATE, LAST_ONLY, "{{ raise_exception('no users here') }}"])
def test_a_template_without_an_end_is_refused_in_one_sentence(template):
    with pytest.raises(ConfigError, match="chat template of .*actor_rollout_ref.model.custom_chat_template") as error:
        find_turn_end(tokenizer([], template))
    assert "\n" not in str(error.value)


def test_stop_tokens_are_the_end_and_those_of_the_configuration():
    trained = tokenizer([])
    end = find_turn_end(trained)
    assert stop_ids(trained, end) == [end.token_id]
    assert stop_ids(trained, end, (7, end.token_id)) == sorted([end.token_id, 7])
    with pytest.raises(ConfigError, match=f"kernelgym.stop_token_ids holds {len(trained)}"):
        stop_ids(trained, end, (len(trained),))


TRAINED = tokenizer(["x = 1"], end=BASE_END)
NAMES = ["<|im_end|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", BASE_END, "<think>"]


def special_tokens_in(text: str) -> int:
    ids = TRAINED.apply_chat_template([{"role": "user", "content": text}], return_dict=False)
    return sum(index in special_ids(TRAINED) for index in ids)


def test_every_special_token_is_known():
    assert set(TRAINED.convert_ids_to_tokens(sorted(special_ids(TRAINED)))) == set(NAMES) - {"<think>"}


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
    assert not special_ids(nested) & set(nested.encode(neutraliser(nested)("<a<b> and <b>")))
