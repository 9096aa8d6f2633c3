# SPDX-License-Identifier: Apache-2.0
"""Bodies of completions, most of them wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.stub_endpoint import completion
from verl_kernel.bench.models.answers import Answer, parse_reply


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": [{"message": null}]}']
    + [json.dumps(completion(text)).encode() for text in (None, "", 3, ["x"])]
    + [b'{"choices": [{"message": "text"}]}', b"[" * 100_000],
)
def test_a_body_without_text_is_malformed(body):
    assert parse_reply(body).failure == "malformed"


def test_no_text_at_the_limit_of_tokens_is_too_long():
    assert parse_reply(json.dumps(completion(None, finish_reason="length")).encode()).failure == "too_long"


def test_half_a_surrogate_pair_becomes_a_question_mark():
    answer = parse_reply(rb'{"choices": [{"message": {"content": "a\ud800b"}}]}')
    assert answer == Answer(text="a?b")


@pytest.mark.parametrize("count", [-1, True, "3", 1.5, None, 2**60])
def test_counts_that_are_none_are_unknown(count):
    body = {**completion("x"), "usage": {"prompt_tokens": count, "completion_tokens": 4}}
    answer = parse_reply(json.dumps(body).encode())
    assert (answer.prompt_tokens, answer.completion_tokens) == (None, 4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "usage", "finish_reason"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_json_comes_there_is_an_answer(body):
    answer = parse_reply(json.dumps(body).encode())
    assert isinstance(answer, Answer)
    assert answer.text or answer.failure
