# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data coldstart` against an endpoint that answers as it is told, with real judges."""

import json
from random import Random

import pyarrow.parquet as pq
import pytest

from tests.bench.stub_endpoint import StubEndpoint
from tests.commands.lines import assert_one_sentence, invoked
from tests.generated import draw_tasks, one_of
from verl_kernel.data.conversations import SCHEMA
from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.generated_tasks.conversations import answer_text, task_messages
from verl_kernel.generated_tasks.kinds import Kind

PROGRAMS = draw_tasks(2, Random(4))
KINDS = (Kind.WRONG, Kind.FUSED, Kind.PARTIAL)
"""What the model answers in its first, second and third turn; on the second task always something wrong."""
SAID = {
    (task_messages(program)[0]["content"], turn): answer_text(one_of(program, kind, Random(0)))
    for program, kinds in zip(PROGRAMS, (KINDS, (Kind.WRONG,) * 3), strict=True)
    for turn, kind in enumerate(kinds)
}


class Told(StubEndpoint):
    def text_for(self, body):
        messages = body["messages"]
        return SAID[messages[0]["content"], sum(message["role"] == "assistant" for message in messages)]


@pytest.fixture
def tasks(tmp_path):
    rows = [
        make_row(task_messages(p), p.reference, data_source="own", task_id=p.task_id, split="train", index=n)
        for n, p in enumerate(PROGRAMS)
    ]
    write_rows(rows, tmp_path / "tasks.parquet")
    return tmp_path / "tasks.parquet"


def coldstart(tasks, tmp_path, *more, exit_code=0):
    files = ("--suite", tasks, "--run", tmp_path / "run", "--out", tmp_path / "talks.parquet")
    return invoked("data", "coldstart", *files, "--device", "cpu", *more, exit_code=exit_code)


@pytest.mark.processes
def test_talks_come_from_what_led_to_a_kernel(tasks, tmp_path):
    pytest.importorskip("openai")
    out, words = tmp_path / "talks.parquet", ("--compile-for", "off", "-n", "1", "--turns", "3")
    with Told(answers={}) as endpoint:
        asking = (*words, "--base-url", endpoint.url, "--model", "stub")
        done = coldstart(tasks, tmp_path, *asking)
        assert len(endpoint.asked) == 6
        assert "1 conversations about 1 tasks; 1 left out because" in done.output
        (talk,) = pq.read_table(out).to_pylist()
        coldstart(tasks, tmp_path, *asking)
        assert len(endpoint.asked) == 6
    assert pq.read_schema(out).equals(SCHEMA)
    texts = [message["content"] for message in talk["messages"]]
    first = task_messages(PROGRAMS[0])[0]["content"]
    assert [texts[0], texts[1], texts[3]] == [first, SAID[first, 0], SAID[first, 1]]
    assert len(texts) == 4
    assert texts[2].startswith("Verdict: incorrect")
    assert json.loads(talk["source"])["model"] == "stub"
    coldstart(tasks, tmp_path, *words, "--keep", "last")
    assert [len(row["messages"]) for row in pq.read_table(out).to_pylist()] == [6]


@pytest.mark.slow
def test_an_endpoint_that_does_not_answer_is_told(tasks, tmp_path):
    done = coldstart(tasks, tmp_path, "--base-url", "http://127.0.0.1:9/v1", "--model", "m", exit_code=3)
    assert_one_sentence(done.stderr, "does not answer")
