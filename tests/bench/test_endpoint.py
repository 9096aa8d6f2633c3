# SPDX-License-Identifier: Apache-2.0
"""A model behind an endpoint, and every way in which an endpoint fails."""

import socket

import pytest

from tests.bench.stub_endpoint import KEY, StubEndpoint, completion
from verl_kernel.bench.models.answers import Question
from verl_kernel.bench.models.endpoint import Endpoint, Sampling, split_chat_tokens
from verl_kernel.bench.suites import SuiteItem
from verl_kernel.env import Task
from verl_kernel.errors import ConfigError, EndpointError

REFERENCE = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
MESSAGES = ({"role": "user", "content": "Write a kernel."},)
ITEM = SuiteItem(Task(REFERENCE, "one"), MESSAGES)
SOON = ("Retry-After-Ms", "1")
LONG = {"error": {"message": "This model's maximum context length is 2048 tokens.", "code": 400}}


def endpoint(stub, **sampling):
    return Endpoint(stub.url, "stub", KEY, Sampling(**{"retries": 1, "max_tokens": 100, **sampling}), own=True)


async def asked(stub, turn=1, **sampling):
    model = endpoint(stub, **sampling)
    try:
        return await model.answer(Question(ITEM, 0, turn, MESSAGES, seed=7))
    finally:
        await model.close()


async def test_an_answer_and_what_was_sent():
    with StubEndpoint() as stub:
        answer = await asked(stub, temperature=0.0, top_p=0.5, max_tokens=33)
    assert (answer.text, answer.failure, answer.is_cut) == ("I do not know this task.", None, False)
    assert (answer.prompt_tokens, answer.completion_tokens) == (50, 20)
    (body,) = stub.asked
    assert body["messages"] == list(MESSAGES)
    assert body["model"] == "stub"
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["seed"]) == (0.0, 0.5, 33, 7)


async def test_a_limit_of_rate_is_waited_for():
    with StubEndpoint([(429, {"error": {"message": "slow down"}}, [SOON])]) as stub:
        assert (await asked(stub)).text
    assert len(stub.asked) == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [(429, "limits the rate of requests .*lower --requests"), (503, "has stopped answering"), (500, "has stopped")],
)
async def test_an_endpoint_that_goes_on_failing_ends_the_run(status, words):
    with StubEndpoint([(status, {"error": {"message": "no"}}, [SOON])] * 9) as stub:
        with pytest.raises(EndpointError, match=f"{words}.*the same command goes on"):
            await asked(stub)
        assert len(stub.asked) == 2


async def test_a_server_that_says_nothing_ends_the_run():
    late = "has stopped answering .*allow more than 0.2 s with --request-timeout; the same command goes on"
    with StubEndpoint(["silent"] * 9) as stub, pytest.raises(EndpointError, match=late):
        await asked(stub, timeout_s=0.2, retries=1)


async def test_a_wrong_key_is_refused_at_the_start_and_in_the_middle(monkeypatch):
    with StubEndpoint(needs_key=True) as stub:
        monkeypatch.setattr("tests.bench.test_endpoint.KEY", "wrong")
        model = endpoint(stub)
        for call in (model.check, lambda: model.answer(Question(ITEM, 0, 1, MESSAGES, 0))):
            with pytest.raises(ConfigError, match="refuses the key .*--key-variable"):
                await call()
        await model.close()


async def test_the_right_key_passes():
    with StubEndpoint(needs_key=True) as stub:
        model = endpoint(stub)
        await model.check()
        await model.close()


async def test_an_endpoint_that_is_down_is_found_at_the_start():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    model = Endpoint(f"http://127.0.0.1:{port}/v1", "stub", "k", Sampling(retries=0), own=True)
    with pytest.raises(EndpointError, match=rf"127.0.0.1:{port}/v1 does not answer .*start the server"):
        await model.check()
    await model.close()


async def test_an_unknown_model_is_named():
    unknown = (404, {"error": {"message": "The model `stub` does not exist."}})
    with StubEndpoint([unknown]) as stub, pytest.raises(ConfigError, match="has no model stub"):
        await asked(stub)


async def test_a_malformed_body_is_asked_for_again_and_then_counted():
    with StubEndpoint(["malformed"]) as stub:
        assert (await asked(stub)).failure is None
    with StubEndpoint(["malformed"] * 9) as stub:
        answer = await asked(stub)
        assert answer.failure == "malformed"
        assert answer.fault == f"{stub.url} sent a page of HTML (<html>no JSON</html>)"
        assert len(stub.asked) == 3


async def checked(stub):
    model = endpoint(stub)
    try:
        await model.check()
    finally:
        await model.close()


async def test_a_server_with_a_model_list_is_not_probed():
    with StubEndpoint() as stub:
        await checked(stub)
    assert not stub.asked


@pytest.mark.parametrize("models", [b"<html>", b'{"hello": "world"}', b"", b"null", b'{"data": {}}', b"\xff\x00"])
async def test_a_server_without_a_model_list_may_answer(models):
    with StubEndpoint(models=models) as stub:
        await checked(stub)
    assert [body["messages"] for body in stub.asked] == [[{"role": "user", "content": "Say yes."}]]


async def test_a_server_without_models_and_chat_is_refused():
    said = "sent a page of HTML .* and no chat completion to 1 question: see that --base-url"
    with StubEndpoint(["malformed"], models=b"<html>") as stub, pytest.raises(EndpointError, match=said):
        await checked(stub)


async def test_a_list_of_models_that_does_not_end_is_none():
    with StubEndpoint(models=b"[" * (1 << 23)) as stub:
        await checked(stub)
    assert len(stub.asked) == 1


async def test_a_body_that_is_cut_off_ends_the_run():
    with StubEndpoint(["cut"] * 9) as stub, pytest.raises(EndpointError, match="has stopped answering"):
        await asked(stub)


async def test_an_endless_body_is_cut_and_counted():
    with StubEndpoint(["endless"]) as stub:
        answer = await asked(stub)
    assert answer.failure == "too_long"
    assert answer.is_cut
    assert answer.text is None


@pytest.mark.parametrize("status", [400, 422])
async def test_a_prompt_without_room_is_counted(status):
    with StubEndpoint([(status, LONG)]) as stub:
        assert (await asked(stub)).failure == "context_overflow"


async def test_a_refused_request_is_the_users_only_at_first():
    refusal = (400, {"error": {"message": "temperature must be 1"}})
    with (
        StubEndpoint([refusal]) as stub,
        pytest.raises(ConfigError, match="refuses the request .*temperature must be 1"),
    ):
        await asked(stub)
    with StubEndpoint([refusal] * 3) as stub:
        assert (await asked(stub, turn=2)).failure == "malformed"


async def test_a_newer_name_of_the_limit_is_taken_up():
    refusal = (400, {"error": {"message": "Use 'max_completion_tokens' instead."}})
    with StubEndpoint([refusal]) as stub:
        assert (await asked(stub, max_tokens=5)).text
    assert "max_tokens" in stub.asked[0]
    assert stub.asked[1]["max_completion_tokens"] == 5


async def test_an_answer_cut_at_its_limit_says_so():
    with StubEndpoint([(200, completion("```python\nx =", finish_reason="length"))]) as stub:
        answer = await asked(stub)
    assert answer.is_cut
    assert answer.failure is None


def test_tokens_of_chat_templates_are_parted():
    said = split_chat_tokens("a <|im_end|>\n<|user|>b <module> x<|y")
    assert said == "a < |im_end|>\n< |user|>b <module> x<|y"
    assert split_chat_tokens(said) == said
