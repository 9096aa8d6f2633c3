# SPDX-License-Identifier: Apache-2.0
"""Malformed answers: data among others, an endpoint's failure where there are no others."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.scripted_run import Counted, Judges, Scripted, header_of, suite_of
from tests.bench.stub_endpoint import StubEndpoint, completion
from verl_kernel.bench.models.answers import Answer, parse_reply
from verl_kernel.bench.models.endpoint import Endpoint, Sampling
from verl_kernel.bench.records import HEADER, TURNS, read_run
from verl_kernel.bench.request import BenchOptions
from verl_kernel.bench.store import Store
from verl_kernel.bench.trajectories import play_all
from verl_kernel.errors import EndpointError

MALFORMED = Answer(failure="malformed", fault="http://x/v1 sent nothing")
GOOD = Answer("I do not know.")
NAMES = [f"t{number}" for number in range(8)]
WRONG = {
    b"<!doctype html><title>Log in</title>": "a page of HTML (<!doctype html><title>Log in</title>)",
    b'{"hello": "world"}': 'JSON without an answer in `choices` ({"hello": "world"})',
    b'{"choices": [{"message"': 'JSON that breaks off ({"choices": [{"message")',
    b'{"choices": []}': 'JSON without an answer in `choices` ({"choices": []})',
    json.dumps(completion(None)).encode(): "an answer whose `content` is null",
    json.dumps(completion(5)).encode(): "an answer whose `content` is no text (5)",
    b"\x89PNG\x00\xff": "bytes that are no text (6 of them)",
    b"": "an empty body",
    b"OK": "text that is no JSON (OK)",
}


async def played(folder, model, names=NAMES, **options):
    options, suite = BenchOptions(**{"requests": 1, **options}), suite_of(*names)
    with Store(folder, header_of(suite, options), suite) as store:
        jobs = [(item, 0) for item in suite.tasks if not store.history((item, 0))]
        await play_all(jobs, model, Judges(), store, options, 1, Counted())
    return read_run(folder)[1]


def scripted(**answers):
    return Scripted({name: [answer] for name, answer in answers.items()})


@pytest.mark.parametrize(("body", "what"), WRONG.items())
async def test_an_endpoint_without_completions_ends_the_run(tmp_path, body, what):
    with StubEndpoint(always=body) as stub:
        model = Endpoint(stub.url, "stub", "k", Sampling(retries=0), own=True)
        with pytest.raises(EndpointError) as ended:
            await played(tmp_path, model)
        await model.close()
    assert str(ended.value).startswith(f"{stub.url} sent {what}")
    assert "and no chat completion to 3 questions: see that --base-url" in str(ended.value)
    assert len(stub.asked) == 9
    assert not (tmp_path / HEADER).exists()
    assert not (tmp_path / TURNS).read_bytes()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["choices", "message", "content"]), inner)
    ),
    max_leaves=8,
)
BODIES = st.binary(max_size=40) | st.text(max_size=40).map(str.encode) | JSON.map(lambda one: json.dumps(one).encode())


@settings(max_examples=30, deadline=None)
@given(body=BODIES.filter(lambda body: parse_reply(body).failure == "malformed"))
async def test_any_other_answer_is_one_sentence_with_the_address(tmp_path_factory, body):
    with StubEndpoint(always=body, models=body, answers={}) as stub:
        model = Endpoint(stub.url, "stub", "k", Sampling(retries=0), own=True)
        with pytest.raises(EndpointError) as at_once:
            await model.check()
        with pytest.raises(EndpointError) as ended:
            await played(tmp_path_factory.mktemp("run"), model)
        await model.close()
    for sentence in map(str, (at_once.value, ended.value)):
        assert sentence.startswith(f"{stub.url} sent ")
        assert "see that --base-url" in sentence
        assert sentence.isprintable()


async def test_a_run_of_few_questions_ends_so_too(tmp_path):
    with pytest.raises(EndpointError, match="http://x/v1 sent nothing and no chat completion to 1 question: see"):
        await played(tmp_path, scripted(t0=MALFORMED), names=["t0"])
    assert not (tmp_path / HEADER).exists()


async def test_malformed_answers_before_a_good_one_are_data(tmp_path):
    turns = await played(tmp_path, scripted(t0=MALFORMED, t1=MALFORMED, t2=GOOD), names=NAMES[:3])
    assert {turn.task_id: turn.failure for turn in turns} == {"t0": "malformed", "t1": "malformed", "t2": "no_code"}


async def test_malformed_answers_after_a_good_one_are_data(tmp_path):
    turns = await played(tmp_path, scripted(**{"t0": GOOD} | dict.fromkeys(NAMES[1:], MALFORMED)))
    assert [turn.failure for turn in turns] == ["no_code"] + ["malformed"] * 7


async def test_a_malformed_then_answered_question_keeps_both_turns(tmp_path):
    turns = await played(tmp_path, scripted(t0=MALFORMED), names=["t0"], turns=2)
    assert [(turn.turn, turn.failure) for turn in turns] == [(1, "malformed"), (2, None)]


async def test_as_many_as_are_in_flight_may_be_malformed(tmp_path):
    model = scripted(**dict.fromkeys(NAMES[:5], MALFORMED))
    turns = await played(tmp_path, model, requests=6)
    assert sum(turn.failure == "malformed" for turn in turns) == 5
    assert len(turns) == 8


async def test_the_last_question_of_a_good_run_may_be_malformed(tmp_path):
    with pytest.raises(EndpointError):
        await played(tmp_path, Scripted({"t1": [down]}), names=["t0", "t1"])
    turns = await played(tmp_path, scripted(t1=MALFORMED), names=["t0", "t1"])
    assert [(turn.task_id, turn.failure) for turn in turns] == [("t0", None), ("t1", "malformed")]


async def test_another_endpoint_goes_on_where_one_was_none(tmp_path):
    with pytest.raises(EndpointError):
        await played(tmp_path, scripted(**dict.fromkeys(NAMES, MALFORMED)))
    assert [turn.failure for turn in await played(tmp_path, Scripted())] == [None] * 8


def down(question):
    raise EndpointError("it does not answer")
