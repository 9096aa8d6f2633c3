# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface, with a pool that answers at once or when told to; `test_judging` has one that judges."""

import json
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.serving import GYM, KEYS, Pool, client, serving, some_keys, wait_for
from verl_kernel.client.messages import LONGEST_WAIT_S, evaluation_id
from verl_kernel.env.conformance.programs import HONEST, REFERENCE
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError, StorageError
from verl_kernel.service.app import _ROUTES
from verl_kernel.service.keys import Keys, read_keys
from verl_kernel.service.options import ServiceOptions
from verl_kernel.service.record import ServiceRecord

TASK = {"reference": REFERENCE, "task_id": "t"}


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def http(pool, tmp_path):
    with serving(pool, tmp_path, GYM) as address, client(address) as http:
        yield http


@pytest.fixture
def tenants(pool, tmp_path):
    """Clients by their namespaces."""
    with serving(pool, tmp_path, GYM, some_keys(tmp_path), most_waiting=3) as address:
        yield {name: client(address, name) for name in ("one", "two", "operator")} | {None: client(address)}


@contextmanager
def held(pool):
    pool.open.clear()
    try:
        yield
    finally:
        pool.open.set()


def wanted(source=HONEST, **rest):
    return {"task": TASK, "source": source, **rest}


def post(http, *candidates, **rest):
    return http.post("/v1/evaluations", json={"evaluations": candidates, **rest})


def posted(http, *candidates, wait_s=30):
    answer = post(http, *candidates, wait_s=wait_s)
    assert answer.status_code == 200, answer.text
    return answer.json()["evaluations"]


def state_of(http, name, **asked):
    return http.get(f"/v1/evaluations/{name}", params=asked).json()["state"]


def detail(answer, status):
    assert answer.status_code == status, answer.text
    return answer.json()["detail"]


def test_an_evaluation_has_its_result_and_a_pool_is_told_all(http, pool):
    (found,) = posted(http, wanted("a", kernel="k.py", validate=True, step=7))
    assert found["state"] == "done"
    assert EvalResult.model_validate_json(json.dumps(found["result"])).kernel == "k.py"
    assert pool.asked == [("", "t", "a", "k.py", True, 7)]


def test_many_come_in_order(http):
    found = posted(http, *(wanted(f"# {number}", kernel=str(number)) for number in range(20)))
    assert [each["result"]["kernel"] for each in found] == [str(number) for number in range(20)]


def test_a_task_is_sent_once(http):
    (found,) = posted(http, {"task": http.post("/v1/tasks", json=TASK).json()["id"], "source": HONEST})
    assert found["result"]["task_id"] == "t"


def test_a_result_can_be_asked_for_later(http, pool):
    with held(pool):
        (found,) = posted(http, wanted(), wait_s=0)
        assert found["state"] == "waiting"
        assert state_of(http, found["id"]) == "waiting"
    assert state_of(http, found["id"], wait_s=30) == "done"


def test_equal_requests_are_judged_once(http, pool):
    with held(pool):
        first, second = posted(http, wanted(), wait_s=0), posted(http, wanted(), wait_s=0)
    third = posted(http, wanted())
    assert first[0]["id"] == second[0]["id"] == third[0]["id"]
    assert len(pool.asked) == 1


def test_an_infra_error_is_judged_again(http, pool):
    pool.status = EvalStatus.INFRA_ERROR
    assert posted(http, wanted())[0]["result"]["status"] == "infra_error"
    pool.status = EvalStatus.OK
    assert posted(http, wanted())[0]["result"]["status"] == "ok"


def test_an_unusable_reference_is_a_problem_with_a_sentence(http, pool):
    for _ in range(2):
        (found,) = posted(http, wanted("unfit"))
        assert found["state"] == "failed"
        assert found["problem"] == {"type": "TaskError", "message": "reference t cannot serve as a task: no data"}
    assert len(pool.asked) == 1


def test_a_fault_of_the_service_ends_one_evaluation(http, caplog):
    fault, right = posted(http, wanted("fault"), wanted())
    assert fault["problem"]["type"] == "InfraError"
    assert "secret" not in json.dumps(fault)
    assert right["state"] == "done"


def test_what_nobody_wants_is_not_judged(http, pool):
    with held(pool):
        (found,) = posted(http, wanted(), wait_s=0)
        wait_for(lambda: pool.asked)
        assert http.delete(f"/v1/evaluations/{found['id']}").json()["state"] == "cancelled"
    assert pool.cancelled == 1
    assert posted(http, wanted())[0]["state"] == "done"


def test_what_another_one_wants_is_judged(http, pool):
    with held(pool):
        (found,) = posted(http, wanted(), wait_s=0)
        posted(http, wanted(), wait_s=0)
        assert http.delete(f"/v1/evaluations/{found['id']}").json()["state"] == "waiting"
    assert state_of(http, found["id"], wait_s=30) == "done"


@pytest.mark.parametrize(("body", "sentence"), [
    ({}, "evaluations is not as it should be: Field required"),
    ({"evaluations": []}, "evaluations is not as it should be: List should have at least 1 item"),
    ({"evaluations": [wanted(source=7)]}, "evaluations.0.source is not as it should be: .* must be a text"),
    ({"evaluations": [wanted(sorce="")]}, "evaluations.0.sorce is not as it should be: Extra inputs"),
    ({"evaluations": [wanted()], "wait_s": 1e9}, "wait_s is not as it should be"),
    ({"evaluations": [{"task": {"reference": "x = 1"}, "source": ""}]}, "defines no `class Model`"),
    ({"evaluations": [{"task": {"reference": "x ="}, "source": ""}]}, "is not valid Python"),
])  # fmt: skip
def test_bad_requests_are_refused_in_a_sentence(http, body, sentence):
    said = detail(http.post("/v1/evaluations", json=body), 422)
    assert re.search(sentence, said), said


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"\\ud800": 1}', b'{"evaluations": NaN}'])
def test_bodies_that_are_no_requests_are_refused(http, body):
    answer = http.post("/v1/evaluations", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"]


def test_the_way_a_body_is_sent_is_told(http):
    body = json.dumps({"evaluations": [wanted()]})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for headers, kind in ((form, "is said to be application/x-www-form-urlencoded"), ({}, "is said to be of no type")):
        said = detail(http.post("/v1/evaluations", content=body, headers=headers), 422)
        assert kind in said
        assert "Content-Type: application/json" in said
    said = detail(http.post("/v1/evaluations", content="{'a': 1}", headers={"Content-Type": "application/json"}), 422)
    assert said.startswith("the body is no JSON (")
    assert "at character 1" in said


def test_the_page_of_requests_loads_nothing(http):
    assert http.get("/").headers["location"] == "/docs"
    answer = http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    page = answer.text
    assert all(f" {path}</code>" in page for path in http.get("/openapi.json").json()["paths"])
    assert "curl -X POST http://127.0.0.1:8008/v1/evaluations" in page
    assert not re.search(r"<script|src=|https?://(?!127\.0\.0\.1)", page)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


PARTS = st.fixed_dictionaries({}, optional={key: JSON for key in ("task", "source", "kernel", "validate", "step")})
BODIES = st.fixed_dictionaries({"evaluations": st.lists(PARTS | JSON, max_size=3)}, optional={"wait_s": JSON})


@pytest.mark.parametrize("examples", [30, pytest.param(150, marks=pytest.mark.exhaustive)])
def test_nothing_that_is_sent_makes_the_service_fail(http, examples):
    @settings(max_examples=examples)
    @given(st.sampled_from(["/v1/evaluations", "/v1/tasks"]), JSON | BODIES)
    def send(path, body):
        answer = http.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert answer.status_code < 500, answer.text

    send()


OPERATIONS = sorted((route.path, method) for route in _ROUTES.routes for method in route.methods)
GOOD, BAD = "positive", "negative"
MODES = [
    (path, method, mode)
    for path, method in OPERATIONS
    for mode in (GOOD, BAD)
    # A drained service accepts nothing, and where nothing is sent nothing can be wrong.
    if path != "/v1/drain" and (mode == GOOD or path not in ("/health", "/ready"))
]


@pytest.fixture(scope="module")
def description(tmp_path_factory):
    import schemathesis  # takes seconds

    with serving(Pool(), tmp_path_factory.mktemp("schema"), GYM) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


@pytest.mark.slow
@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("path", "method", "mode"), MODES)
def test_no_request_near_the_description_makes_the_service_fail(description, path, method, mode, examples):
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(description[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    def send(case):
        case.call_and_validate(checks=[not_a_server_error])

    send()


def test_a_page_in_a_browser_cannot_ask(http):
    assert http.post("/v1/evaluations", content=json.dumps({"evaluations": [wanted()]})).status_code == 422
    assert http.get("/health", headers={"Host": "evil.example"}).status_code == 400


def test_unknown_ids_are_not_found(http):
    assert "no evaluation" in detail(http.get("/v1/evaluations/nothing"), 404)
    assert "no evaluation" in detail(http.delete("/v1/evaluations/nothing"), 404)
    assert "send its reference to /v1/tasks first" in detail(post(http, {"task": "nothing", "source": ""}), 404)


def test_a_large_body_is_refused(pool, tmp_path):
    with serving(pool, tmp_path, GYM, request_mb=0.01) as address, client(address) as http:
        assert "more than 0.01 MB" in detail(post(http, wanted("#" * 20_000)), 413)
        assert posted(http, wanted())[0]["state"] == "done"


def test_a_slow_client_is_cut_off(pool, tmp_path):
    with serving(pool, tmp_path, GYM, request_s=0.3) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as line:
            line.sendall(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            assert b"408" in line.recv(200)


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_half_sent_head_is_cut_off(pool, tmp_path, earlier):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    with serving(pool, tmp_path, GYM, request_s=0.3) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as line:
            for _ in range(earlier):
                line.sendall(head + b"\r\n")
                assert b"200 OK" in line.recv(1000)
            for _ in range(600):  # a byte at a time does not keep it open
                line.sendall(head[:1])
                head = head[1:] or b"x"
                if select.select([line], [], [], 0.05)[0]:
                    break
            assert line.recv(1000) == b""


def test_a_namespace_has_a_bounded_number_of_evaluations(tenants, pool):
    one, two = tenants["one"], tenants["two"]
    with held(pool):
        posted(one, *(wanted(str(number)) for number in range(3)), wait_s=0)
        refused = post(one, wanted("4"))
        assert "no more than 3 evaluations" in detail(refused, 429)
        assert int(refused.headers["Retry-After"]) >= 1
        assert posted(one, wanted("2"), wait_s=0)[0]["state"] == "waiting"  # it is known
        posted(two, *(wanted(str(number)) for number in range(3)), wait_s=0)
    wait_for(lambda: posted(one, wanted("0"))[0]["state"] == "done")
    assert posted(one, wanted("4"))[0]["state"] == "done"


def test_more_than_fits_is_refused_as_a_whole(tenants, pool):
    assert "no more than 3" in detail(post(tenants["one"], *(wanted(str(number)) for number in range(4))), 429)
    assert pool.asked == []


@pytest.mark.parametrize("path", ["/v1/evaluations/x", "/v1/stats", "/metrics", "/v1/options"])
def test_without_a_key_nothing_is_told(tenants, path):
    assert "the key is unknown or missing" in detail(tenants[None].get(path), 401)


def test_health_needs_no_key(tenants):
    assert tenants[None].get("/health").json() == {"status": "ok"}
    assert tenants[None].get("/ready").json() == {"ready": True}


def test_a_namespace_does_not_see_another_one(tenants, pool):
    one, two = tenants["one"], tenants["two"]
    (found,) = posted(one, wanted())
    name = one.post("/v1/tasks", json=TASK).json()["id"]
    assert two.get(f"/v1/evaluations/{found['id']}").status_code == 404
    assert two.delete(f"/v1/evaluations/{found['id']}").status_code == 404
    assert post(two, {"task": name, "source": ""}).status_code == 404
    (other,) = posted(two, wanted())
    assert other["id"] != found["id"]
    assert [namespace for namespace, *_ in pool.asked] == ["one", "two"]


@pytest.mark.parametrize("path", ["/v1/stats", "/metrics"])
def test_the_operator_alone_sees_the_pool(tenants, path):
    assert "operator" in detail(tenants["one"].get(path), 403)
    assert tenants["operator"].get(path).status_code == 200


def test_prometheus_can_read_the_figures(http):
    posted(http, wanted())
    text = http.get("/metrics").text
    assert 'kernelgym_evaluations_ended_total{state="done"} 1.0' in text
    assert 'kernelgym_judges{state="free"} 1.0' in text


def test_a_drained_service_finishes_what_it_has(http, pool):
    with held(pool):
        (found,) = posted(http, wanted(), wait_s=0)
        assert http.post("/v1/drain").json() == {"waiting": 1}
        assert "accepts nothing new" in detail(post(http, wanted("b")), 503)
        assert http.get("/ready").status_code == 503
    assert state_of(http, found["id"], wait_s=30) == "done"
    http.post("/v1/drain?undo=true")
    assert posted(http, wanted("b"))[0]["state"] == "done"


def test_a_result_that_cannot_be_recorded_is_served(pool, tmp_path, monkeypatch):
    def full(*_):
        raise StorageError("the disk is full")

    with serving(pool, tmp_path, GYM) as address, client(address) as http:
        with held(pool):
            posted(http, wanted(), wait_s=0)
            monkeypatch.setattr(ServiceRecord, "end", full)
        assert posted(http, wanted())[0]["state"] == "done"
        monkeypatch.setattr(ServiceRecord, "accept", full)
        assert "nothing can be recorded" in detail(post(http, wanted("b")), 503)


def test_what_waits_at_the_end_is_judged_by_the_next_service(pool, tmp_path):
    pool.open.clear()
    with serving(pool, tmp_path, GYM, grace_s=0) as address, client(address) as http:
        (found,) = posted(http, wanted(), wait_s=0)
    pool.open.set()
    with serving(pool, tmp_path, GYM) as address, client(address) as http:
        assert state_of(http, found["id"], wait_s=30) == "done"


def accepted_before(folder, kills):
    """The id of an evaluation that waited while so many services were killed."""
    record = ServiceRecord(folder)
    request = EvalRequest(Task(REFERENCE, task_id="t"), HONEST)
    record.accept([request])
    for _ in range(kills):
        record.unfinished()
    record.close()
    return evaluation_id(request)


@pytest.mark.parametrize(("kills", "state"), [(1, "done"), (2, "done"), (3, "lost")])
def test_what_three_kills_did_not_let_end_is_lost(pool, tmp_path, kills, state):
    name = accepted_before(tmp_path, kills)
    with serving(pool, tmp_path, GYM) as address, client(address) as http:
        assert state_of(http, name, wait_s=30) == state


@pytest.mark.slow
def test_services_that_end_as_they_should_lose_nothing(pool, tmp_path):
    name = accepted_before(tmp_path, 1)
    pool.open.clear()
    for _ in range(4):
        with serving(pool, tmp_path, GYM, grace_s=0) as address, client(address) as http:
            assert state_of(http, name) == "waiting"
    pool.open.set()
    with serving(pool, tmp_path, GYM) as address, client(address) as http:
        assert state_of(http, name, wait_s=30) == "done"


def test_an_answer_does_not_wait_once_the_service_ends(pool, tmp_path):
    pool.open.clear()
    with ThreadPoolExecutor() as threads:
        with serving(pool, tmp_path, GYM, grace_s=0) as address:
            answer = threads.submit(posted, client(address), wanted(), wait_s=LONGEST_WAIT_S)
            wait_for(lambda: pool.asked)
            asked = time.monotonic()
        assert answer.result()[0]["state"] == "waiting"
    assert time.monotonic() - asked < LONGEST_WAIT_S - 5


def test_a_key_has_its_namespace(tmp_path):
    keys = some_keys(tmp_path)
    assert {name: keys.namespace(f"Bearer {key}") for name, key in KEYS.items()} == {name: name for name in KEYS}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic key-of-the-namespace-one", "\udc80"])
def test_another_key_has_none(tmp_path, header):
    assert some_keys(tmp_path).namespace(header) is None


def test_without_a_file_no_key_is_asked_for():
    assert read_keys(None).namespace(None) == ""


def test_only_the_operator_controls_a_service_with_keys(tmp_path):
    keys = some_keys(tmp_path)
    assert [name for name in KEYS if keys.is_operator(name)] == ["operator"]
    assert Keys({}).is_operator("")


@pytest.mark.parametrize(("text", "sentence"), [
    ("", "holds no key"),
    ("# nothing\n", "holds no key"),
    ("one short\n", "line 1 of .* is no key"),
    ("One key-of-the-namespace-one\n", "line 1 of .* is no key"),
    ("one key-of-the-namespace-one more\n", "line 1 of .* is no key"),
    ("one key-of-the-namespace-one\none key-of-the-namespace-two\n", "line 2 of .* an earlier line has"),
    ("one key-of-the-namespace-one\ntwo key-of-the-namespace-one\n", "line 2 of .* an earlier line has"),
])  # fmt: skip
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=sentence):
        read_keys(str(path))


def test_a_file_that_others_can_read_is_refused(tmp_path):
    some_keys(tmp_path)
    (tmp_path / "keys").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keys(str(tmp_path / "keys"))


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match="serve.keys is /nowhere/keys, which cannot be read"):
        read_keys("/nowhere/keys")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "judges"])
def test_without_keys_it_listens_on_this_machine_only(host, tmp_path):
    with pytest.raises(ConfigError, match="name a file of keys with serve.keys"):
        ServiceOptions(host=host)
    assert ServiceOptions(host=host, keys=str(tmp_path / "keys")).host == host
