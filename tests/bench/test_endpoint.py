# SPDX-License-Identifier: Apache-2.0
"""A model behind an endpoint: its address, bodies of its replies, and every way in which it fails."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.scripted_run import Judges, Scripted, down, played, suite_of
from tests.bench.stub_endpoint import KEY, StubEndpoint, completion
from tests.service.serving import free_port
from verl_kernel.bench.models.answers import ModelAnswer, Question, parse_reply
from verl_kernel.bench.models.choice import refuse_no_address
from verl_kernel.bench.models.endpoint import Endpoint, Sampling, split_chat_tokens
from verl_kernel.bench.records import HEADER, TURNS
from verl_kernel.errors import ConfigError, EndpointError

MESSAGES = ({"role": "user", "content": "Write a kernel."},)
(ITEM,) = suite_of("one").tasks
SOON = ("Retry-After-Ms", "1")
LONG = {"error": {"message": "This model's maximum context length is 2048 tokens.", "code": 400}}


def endpoint(stub, key=KEY, **sampling):
    return Endpoint(stub.url, "stub", key, Sampling(**{"retries": 1, "max_tokens": 100, **sampling}), is_own=True)


async def asked(stub, turn=1, checks=False, **sampling):
    """The answer to a question, or what a check before all questions says."""
    model = endpoint(stub, **sampling)
    try:
        return await (model.check() if checks else model.answer(Question(ITEM, 0, turn, MESSAGES, seed=7)))
    finally:
        await model.close()


@pytest.mark.parametrize("url", ["http://a:8000/v1", "https://api.x.org/v1", "http://[::1]:80/v1", "HTTP://localhost"])
def test_addresses_pass(url):
    refuse_no_address(url)


NO_HOST = ("/v1", "x:port/v1", "x:99999/v1", "[::1/v1", "a b/v1", "\u00b9/v1", "1.2.3.999/v1")
NO_ADDRESS = {
    **dict.fromkeys(("127.0.0.1:8101", "localhost:8000/v1", ""), "without a scheme: begin it with http://"),
    "ftp://x/v1": "its scheme must be http or https",
    **{f"http://{rest}": "names no host or no port" for rest in NO_HOST},
}


@pytest.mark.parametrize("url", NO_ADDRESS)
def test_what_is_no_address_is_refused_with_the_remedy(url):
    with pytest.raises(ConfigError, match=f"--base-url is .*{NO_ADDRESS[url]}.*as in http://127.0.0.1:8000/v1"):
        refuse_no_address(url)


PARTS = st.text(max_size=12) | st.sampled_from(["localhost", "127.0.0.1:8000", "[::1]", "a.b/v1", "x:1/v1?y#z", "@:"])


@given(scheme=st.sampled_from(["", "http://", "https://", "//", "file://"]), rest=PARTS)
async def test_the_client_takes_every_address_that_passes(scheme, rest):
    try:
        refuse_no_address(scheme + rest)
    except ConfigError:
        return
    await Endpoint(scheme + rest, "m", "k", Sampling(), is_own=True).close()


@pytest.mark.slow
async def test_an_answer_and_what_was_sent():
    with StubEndpoint() as stub:
        answer = await asked(stub, temperature=0.0, top_p=0.5, max_tokens=33)
    assert (answer.text, answer.failure, answer.is_cut) == ("I do not know this task.", None, False)
    assert (answer.prompt_tokens, answer.completion_tokens) == (50, 20)
    (body,) = stub.asked
    assert (body["messages"], body["model"]) == (list(MESSAGES), "stub")
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["seed"]) == (0.0, 0.5, 33, 7)


NO = {"error": {"message": "temperature must be 1"}}
ENDS = {
    "a limit of rate": ((429, NO, [SOON]), {}, EndpointError, "limits the rate of requests .*lower --requests"),
    "overload": ((503, NO, [SOON]), {}, EndpointError, "has stopped answering"),
    "a defect of the server": ((500, NO, [SOON]), {}, EndpointError, "has stopped answering"),
    "silence": (
        "silent", {"timeout_s": 0.2}, EndpointError, "has stopped .*allow more than 0.2 s with --request-timeout"
    ),
    "half a body": ("cut", {}, EndpointError, "has stopped answering"),
    "no such model": ((404, {"error": {"message": "No."}}), {}, ConfigError, "has no model stub"),
    "a refused first request": ((400, NO), {}, ConfigError, "refuses the request .*temperature must be 1"),
}  # fmt: skip
RETRIED = ("a limit of rate", "overload", "a defect of the server")


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
async def test_an_endpoint_that_goes_on_so_ends_the_run(name):
    act, sampling, error, words = ENDS[name]
    match = f"{words}.*the same command goes on" if error is EndpointError else words
    with StubEndpoint([act] * 9) as stub, pytest.raises(error, match=match):
        await asked(stub, **sampling)
    assert len(stub.asked) == (2 if name in RETRIED else 1)


@pytest.mark.slow
async def test_a_key_is_asked_for_at_the_start_and_in_the_middle():
    with StubEndpoint(needs_key=True) as stub:
        await asked(stub, checks=True)
        model = endpoint(stub, key="wrong")
        for call in (model.check, lambda: model.answer(Question(ITEM, 0, 1, MESSAGES, 0))):
            with pytest.raises(ConfigError, match="refuses the key .*--key-variable"):
                await call()
        await model.close()


async def test_an_endpoint_that_is_down_is_found_at_the_start():
    port = free_port()
    model = Endpoint(f"http://127.0.0.1:{port}/v1", "stub", "k", Sampling(retries=0), is_own=True)
    with pytest.raises(EndpointError, match=rf"127.0.0.1:{port}/v1 does not answer .*start the server"):
        await model.check()
    await model.close()


OUTCOMES = {
    "a limit of rate": ([(429, NO, [SOON])], 1, None, False, 2),
    "a later refused request": ([(400, NO)] * 3, 2, "malformed", False, 3),
    "a malformed body": (["malformed"], 1, None, False, 2),
    "malformed bodies alone": (["malformed"] * 9, 1, "malformed", False, 3),
    "an endless body": (["endless"], 1, "too_long", True, 1),
    "a prompt without room": ([(400, LONG)], 1, "context_overflow", False, 1),
    "a prompt without room, said otherwise": ([(422, LONG)], 1, "context_overflow", False, 1),
    "an answer cut at its limit": ([(200, completion("```python", finish_reason="length"))], 1, None, True, 1),
}
"""By what comes first: the turn, how the answer fails, whether it is cut, and the requests that it takes."""


@pytest.mark.parametrize("name", OUTCOMES)
async def test_what_fails_once_is_waited_for_or_counted(name):
    script, turn, failure, is_cut, requests = OUTCOMES[name]
    with StubEndpoint(script) as stub:
        answer = await asked(stub, turn)
    assert (answer.failure, answer.is_cut) == (failure, is_cut)
    assert (answer.text is None) is (failure is not None)
    assert len(stub.asked) == requests


async def test_a_server_with_a_model_list_is_not_probed():
    with StubEndpoint() as stub:
        await asked(stub, checks=True)
    assert not stub.asked


@pytest.mark.slow
@pytest.mark.parametrize(
    "models",
    [b"<html>", b'{"hello": "world"}', b"", b"null", b'{"data": {}}', b"\xff\x00", b"[" * (1 << 23)],
    ids=lambda models: repr(models[:20]),
)
async def test_a_server_without_a_model_list_may_answer(models):
    with StubEndpoint(models=models) as stub:
        await asked(stub, checks=True)
    assert [body["messages"] for body in stub.asked] == [[{"role": "user", "content": "Say yes."}]]


async def test_a_server_without_models_and_chat_is_refused():
    said = "sent a page of HTML .* and no chat completion to 1 question: see that --base-url"
    with StubEndpoint(["malformed"], models=b"<html>") as stub, pytest.raises(EndpointError, match=said):
        await asked(stub, checks=True)


async def test_a_newer_name_of_the_limit_is_taken_up():
    refusal = (400, {"error": {"message": "Use 'max_completion_tokens' instead."}})
    with StubEndpoint([refusal]) as stub:
        assert (await asked(stub, max_tokens=5)).text
    assert "max_tokens" in stub.asked[0]
    assert stub.asked[1]["max_completion_tokens"] == 5


def test_tokens_of_chat_templates_are_parted():
    said = split_chat_tokens("a <|im_end|>\n<|user|>b <module> x<|y")
    assert said == "a < |im_end|>\n< |user|>b <module> x<|y"
    assert split_chat_tokens(said) == said


def body_of(text, **choice):
    return json.dumps(completion(text, **choice)).encode()


WRONG = {
    b"<!doctype html><title>Log in</title>": "a page of HTML (<!doctype html><title>Log in</title>)",
    b'{"hello": "world"}': 'JSON without an answer in `choices` ({"hello": "world"})',
    b'{"choices": [{"message"': 'JSON that breaks off ({"choices": [{"message")',
    b'{"choices": []}': 'JSON without an answer in `choices` ({"choices": []})',
    body_of(None): "an answer whose `content` is null",
    body_of(None, finish_reason="content_filter"): "an answer that the endpoint's filter refused (content_filter)",
    b'{"choices": [{"message": {"content": null, "refusal": "No."}}]}': "an answer that the endpoint's filter",
    b'{"choices": [{"message": {"content": null, "tool_calls": [{}]}}]}': "an answer that calls tools in place of text",
    body_of(5): "an answer whose `content` is no text (5)",
    b"\x89PNG\x00\xff": "bytes that are no text (6 of them)",
    b"": "an empty body",
    b"OK": "text that is no JSON (OK)",
}
TEXTLESS = [b"null", b"[]", b"{}", b'{"choices": [{}]}', b'{"choices": [{"message": null}]}', b"[" * 100_000]
TEXTLESS += [b'{"choices": [{"message": "text"}]}', body_of(""), body_of(["x"])]


@pytest.mark.parametrize("body", [*WRONG, *TEXTLESS], ids=lambda body: repr(body[:40]))
def test_a_body_without_text_is_malformed(body):
    assert parse_reply(body).failure == "malformed"


def test_no_text_at_the_limit_of_tokens_is_too_long():
    assert parse_reply(body_of(None, finish_reason="length")).failure == "too_long"


def test_half_a_surrogate_pair_becomes_a_question_mark():
    assert parse_reply(rb'{"choices": [{"message": {"content": "a\ud800b"}}]}') == ModelAnswer(text="a?b")


@pytest.mark.parametrize("count", [-1, True, "3", 1.5, None, 2**60])
def test_counts_that_are_none_are_unknown(count):
    body = {**completion("x"), "usage": {"prompt_tokens": count, "completion_tokens": 4}}
    answer = parse_reply(json.dumps(body).encode())
    assert (answer.prompt_tokens, answer.completion_tokens) == (None, 4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "usage", "finish_reason"]), inner)
    ),
    max_leaves=12,
).map(lambda one: json.dumps(one).encode())


@given(JSON)
def test_whatever_json_comes_there_is_an_answer(body):
    answer = parse_reply(body)
    assert isinstance(answer, ModelAnswer)
    assert answer.text or answer.failure


MALFORMED = ModelAnswer(failure="malformed", fault="http://x/v1 sent nothing")
GOOD = ModelAnswer("I do not know.")
NAMES = [f"t{number}" for number in range(8)]


async def outcomes(folder, model, names=NAMES, **options):
    """By question, how its answer failed."""
    turns, _ = await played(folder, suite_of(*names), model, Judges(), **{"requests": 1, **options})
    return [(turn.task_id, turn.turn, turn.failure) for turn in turns]


def scripted(**answers):
    return Scripted({name: [answer] for name, answer in answers.items()})


@pytest.mark.slow
@pytest.mark.parametrize(("body", "what"), WRONG.items())
async def test_an_endpoint_without_completions_ends_the_run(tmp_path, body, what):
    with StubEndpoint(always=body) as stub:
        model = endpoint(stub, retries=0)
        with pytest.raises(EndpointError) as ended:
            await outcomes(tmp_path, model)
        await model.close()
    assert str(ended.value).startswith(f"{stub.url} sent {what}")
    assert "and no chat completion to 3 questions: see that --base-url" in str(ended.value)
    assert len(stub.asked) == 9
    assert not (tmp_path / HEADER).exists()
    assert not (tmp_path / TURNS).read_bytes()


BODIES = st.binary(max_size=40) | st.text(max_size=40).map(str.encode) | JSON


@pytest.mark.exhaustive
@settings(max_examples=30)
@given(body=BODIES.filter(lambda body: parse_reply(body).failure == "malformed"))
async def test_any_other_answer_is_one_sentence_with_the_address(tmp_path_factory, body):
    with StubEndpoint(always=body, models=body, answers={}) as stub:
        model = endpoint(stub, retries=0)
        with pytest.raises(EndpointError) as at_once:
            await model.check()
        with pytest.raises(EndpointError) as ended:
            await outcomes(tmp_path_factory.mktemp("run"), model)
        await model.close()
    for sentence in map(str, (at_once.value, ended.value)):
        assert sentence.startswith(f"{stub.url} sent ")
        assert "see that --base-url" in sentence
        assert sentence.isprintable()


async def test_a_run_of_few_malformed_answers_ends_so_too(tmp_path):
    with pytest.raises(EndpointError, match="http://x/v1 sent nothing and no chat completion to 1 question: see"):
        await outcomes(tmp_path, scripted(t0=MALFORMED), names=["t0"])
    assert not (tmp_path / HEADER).exists()


@pytest.mark.parametrize(
    ("answers", "options", "failures"),
    [
        ({"t0": MALFORMED, "t1": MALFORMED, "t2": GOOD}, {"names": NAMES[:3]}, ["malformed", "malformed", "no_code"]),
        ({"t0": GOOD} | dict.fromkeys(NAMES[1:], MALFORMED), {}, ["no_code"] + ["malformed"] * 7),
        ({"t0": MALFORMED}, {"names": ["t0"], "turns": 2}, ["malformed", None]),
        (dict.fromkeys(NAMES[:5], MALFORMED), {"requests": 6}, ["malformed"] * 5 + [None] * 3),
    ],
    ids=["before a good one", "after a good one", "of one question", "as many as are in flight"],
)
async def test_malformed_answers_among_others_are_data(tmp_path, answers, options, failures):
    found = await outcomes(tmp_path, scripted(**answers), **options)
    assert [failure for *_, failure in sorted(found)] == failures


async def test_the_last_question_of_a_good_run_may_be_malformed(tmp_path):
    with pytest.raises(EndpointError):
        await outcomes(tmp_path, Scripted({"t1": [down]}), names=["t0", "t1"])
    found = await outcomes(tmp_path, scripted(t1=MALFORMED), names=["t0", "t1"])
    assert found == [("t0", 1, None), ("t1", 1, "malformed")]


async def test_another_endpoint_goes_on_where_one_was_none(tmp_path):
    with pytest.raises(EndpointError):
        await outcomes(tmp_path, scripted(**dict.fromkeys(NAMES, MALFORMED)))
    assert [failure for *_, failure in await outcomes(tmp_path, Scripted())] == [None] * 8
