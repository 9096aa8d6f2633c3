# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data coldstart` against an endpoint that answers as it is told, with real judges."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.generated import draw_tasks, one_of
from verl_kernel.cli import app
from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.data.talks import SCHEMA
from verl_kernel.world.kinds import Kind
from verl_kernel.world.talks import answer_text, task_messages

PROGRAMS = draw_tasks(2, Random(4))
KINDS = (Kind.WRONG, Kind.FUSED, Kind.PARTIAL)
"""What the model answers in its first, second and third turn; on the second task always something wrong."""


def answers() -> dict[tuple[str, int], str]:
    found = {}
    for program, kinds in zip(PROGRAMS, (KINDS, (Kind.WRONG,) * 3), strict=True):
        for turn, kind in enumerate(kinds):
            found[task_messages(program)[0]["content"], turn] = answer_text(one_of(program, kind, Random(0)))
    return found


class Endpoint(BaseHTTPRequestHandler):
    asked = 0
    said = answers()

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "strong", "object": "model", "created": 0, "owned_by": "us"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked += 1
        messages = body["messages"]
        content = self.said[messages[0]["content"], sum(message["role"] == "assistant" for message in messages)]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        self.reply({
            "id": "x", "object": "chat.completion", "created": 0, "model": "strong", "choices": [choice],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        })  # fmt: skip

    def reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words):
        pass


@contextmanager
def serving() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.fixture
def tasks(tmp_path):
    rows = [
        make_row(task_messages(p), p.reference, data_source="own", task_id=p.task_id, split="train", index=n)
        for n, p in enumerate(PROGRAMS)
    ]
    write_rows(rows, tmp_path / "tasks.parquet")
    return tmp_path / "tasks.parquet"


@pytest.mark.processes
def test_talks_come_from_what_led_to_a_kernel(tasks, tmp_path):
    pytest.importorskip("openai")
    out = tmp_path / "talks.parquet"
    words = ["data", "coldstart", "--suite", str(tasks), "--run", str(tmp_path / "run"), "--out", str(out)]
    words += ["--device", "cpu", "--compile-for", "off", "-n", "1", "--turns", "3"]
    with serving() as url:
        asking = [*words, "--base-url", url, "--model", "strong"]
        done = CliRunner().invoke(app, asking)
        assert done.exit_code == 0, done.output
        asked = Endpoint.asked
        assert asked == 6
        assert "1 conversations about 1 tasks; 1 left out because" in done.output
        (talk,) = pq.read_table(out).to_pylist()
        assert CliRunner().invoke(app, asking).exit_code == 0
        assert Endpoint.asked == asked
    assert pq.read_schema(out).equals(SCHEMA)
    texts = [message["content"] for message in talk["messages"]]
    first = task_messages(PROGRAMS[0])[0]["content"]
    assert [texts[0], texts[1], texts[3]] == [first, Endpoint.said[first, 0], Endpoint.said[first, 1]]
    assert len(texts) == 4
    assert texts[2].startswith("Verdict: incorrect")
    assert json.loads(talk["source"])["model"] == "strong"
    done = CliRunner().invoke(app, [*words, "--keep", "last"])
    assert done.exit_code == 0
    assert [len(row["messages"]) for row in pq.read_table(out).to_pylist()] == [6]


def test_an_endpoint_that_does_not_answer_is_told(tasks, tmp_path):
    words = ["data", "coldstart", "--suite", str(tasks), "--run", str(tmp_path / "run"), "--out", str(tmp_path / "t")]
    done = CliRunner().invoke(app, [*words, "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--device", "cpu"])
    assert done.exit_code == 3, done.output
    assert "does not answer" in done.stderr, done.output
    assert done.stderr.count("\n") == 1, done.output
