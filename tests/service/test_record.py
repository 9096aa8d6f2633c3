# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.client.messages import TaskText, evaluation_id, packed, unpacked
from verl_kernel.env.conformance.programs import HONEST, ODD_SOURCES, REFERENCE
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError, StorageError
from verl_kernel.service.record import Ending, ServiceRecord

TASK = Task(REFERENCE, task_id="t")
TEXTS = st.text(st.characters(exclude_categories=()), max_size=30)


def request(source=HONEST, namespace="", **rest):
    return EvalRequest(replace(TASK, namespace=namespace), source, **rest)


@pytest.fixture
def record(tmp_path):
    record = ServiceRecord(tmp_path / "state")
    yield record
    record.close()


@given(TEXTS, TEXTS, st.booleans(), st.none() | st.integers(-(2**40), 2**40))
def test_a_request_survives_its_record(source, kernel, validate, step):
    one = EvalRequest(TASK, source, kernel, validate, step)
    assert unpacked(packed(one)) == one


@given(TEXTS, TEXTS)
def test_only_equal_requests_share_an_id(source, kernel):
    one = request(source, kernel=kernel)
    others = [
        request(f"{source}#", kernel=kernel), request(source, kernel=f"{kernel}#"), request(source, "n", kernel=kernel),
    ]  # fmt: skip
    others += [replace(one, validate=True), replace(one, step=1), replace(one, task=Task(REFERENCE, task_id="u"))]
    assert evaluation_id(one) not in [evaluation_id(other) for other in others]
    assert evaluation_id(one) == evaluation_id(replace(one))


def test_what_was_accepted_is_found_after_a_restart(tmp_path):
    sources = [HONEST, *ODD_SOURCES]
    first = ServiceRecord(tmp_path)
    for source in sources:
        first.accept([request(source)])
    first.end("", evaluation_id(request(HONEST)), Ending("done", "{}"))
    first.close()
    second = ServiceRecord(tmp_path)
    assert [found.source for found, _ in second.unfinished()] == list(ODD_SOURCES)
    assert second.ending("", evaluation_id(request(HONEST))) == Ending("done", "{}")
    second.close()


def test_starts_are_counted(record):
    record.accept([request()])
    assert [[starts for _, starts in record.unfinished()] for _ in range(3)] == [[0], [1], [2]]


def test_a_namespace_finds_its_own_only(record):
    record.accept([request(namespace="one")])
    name = evaluation_id(request(namespace="one"))
    assert record.ending("one", name) == Ending("waiting", "")
    assert record.ending("two", name) is None
    record.store_task("one", "t", TaskText(reference=REFERENCE))
    assert record.task("one", "t") == TaskText(reference=REFERENCE)
    assert record.task("two", "t") is None


def test_old_endings_are_forgotten_and_what_waits_is_not(record):
    record.accept([request("a"), request("b")])
    record.end("", evaluation_id(request("a")), Ending("done", "{}"))
    record.forget(before=2e9 * 2)
    assert record.ending("", evaluation_id(request("a"))) is None
    assert record.ending("", evaluation_id(request("b"))) is not None


def test_a_full_disk_accepts_nothing_and_loses_nothing(record):
    record.accept([request("a")])
    (pages,) = record._file.execute("PRAGMA page_count").fetchone()
    record._file.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StorageError, match="cannot be written .*full"):
        record.accept([request("b" * 100_000)])
    assert [found.source for found, _ in record.unfinished()] == ["a"]


@pytest.mark.slow
def test_two_services_do_not_share_a_folder(record, tmp_path):
    record.accept([request()])
    with pytest.raises(ConfigError, match="no other service uses"):
        ServiceRecord(tmp_path / "state")


def test_a_folder_that_cannot_be_made_is_named():
    with pytest.raises(ConfigError, match="serve.state is /proc/nothing"):
        ServiceRecord(Path("/proc/nothing"))
