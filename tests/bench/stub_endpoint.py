# SPDX-License-Identifier: Apache-2.0
"""A small OpenAI-compatible server that answers by the prompt alone, and fails in every way that real ones do."""

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

from tests.generated import one_of
from verl_kernel.generated_tasks.kinds import Kind
from verl_kernel.quickstart.drawing import draw
from verl_kernel.quickstart.options import Quickstart

KEY = "right-key"


def model_of(text):
    """The class of a reference, which a prompt shows too."""
    return text.partition("class Model")[2].partition("def get_inputs")[0]


def answers_by_model(count=4):
    """Of the first tasks of suite `cpu`: a right, a lazy, a wrong, a broken answer, and one without a program."""
    found = {}
    for program in draw(Quickstart(), conversations=0).validated["same"][:count]:
        kinds = (Kind.FUSED, Kind.LAZY, Kind.WRONG, Kind.BROKEN)
        blocks = [f"Here.\n```python\n{one_of(program, kind, Random(1)).source}```" for kind in kinds]
        found[model_of(program.reference)] = [*blocks, "I do not know."]
    return found


def completion(text, **choice):
    usage = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}], "usage": usage}


class StubEndpoint:
    """Serves on a port of its own while the block lasts.

    `script` holds what comes first, one entry a request: a status with a body, or one of `answer`, `malformed`, `cut`,
    `endless`, `silent`. After it, and without it, answers depend on the messages and the seed. `delay` seconds pass
    before each. `models` is the body in place of a list of models, `always` the one in place of every answer.
    """

    def __init__(self, script=(), delay=0.0, answers=None, needs_key=False, models=None, always=None):
        self.script, self.delay, self.needs_key = list(script), delay, needs_key
        self.models, self.always = models, always
        self.answers = answers_by_model() if answers is None else answers
        self.asked, self.in_flight, self.most_in_flight = [], 0, 0
        self.lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                if stub.refuses(self.headers):
                    return self.send(401, {"error": {"message": "invalid key"}})
                if stub.models is not None:
                    return self.raw(stub.models)
                return self.send(200, {"object": "list", "data": [{"id": "stub", "object": "model"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub.lock:
                    stub.asked.append(body)
                    stub.in_flight += 1
                    stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
                    act = stub.script.pop(0) if stub.script else None
                try:
                    time.sleep(stub.delay)
                    self.act(act, body)
                finally:
                    with stub.lock:
                        stub.in_flight -= 1

            def act(self, act, body):
                if stub.refuses(self.headers):
                    self.send(401, {"error": {"message": "invalid key"}})
                elif stub.always is not None:
                    self.raw(stub.always)
                elif act in (None, "answer"):
                    self.send(200, completion(stub.text_for(body)))
                elif act == "malformed":
                    self.raw(b"<html>no JSON</html>")
                elif act == "cut":
                    self.raw(b'{"choices": [', length=1000)
                    self.close_connection = True
                elif act == "endless":
                    self.endless()
                elif act == "silent":
                    time.sleep(5)
                    self.close_connection = True
                else:
                    self.send(*act)

            def send(self, status, body, headers=()):
                self.raw(json.dumps(body).encode(), status=status, headers=headers)

            def raw(self, data, status=200, length=None, headers=()):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data) if length is None else length))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def endless(self):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    while True:
                        self.wfile.write(b'{"choices": [{"message": {"content": "' + b"x" * (1 << 16))
                except OSError:
                    pass  # the client has gone

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda request, address: None  # clients that were killed

    def refuses(self, headers):
        return self.needs_key and headers.get("Authorization") != f"Bearer {KEY}"

    def text_for(self, body):
        choices = self.answers.get(model_of(body["messages"][0]["content"])) or ["I do not know this task."]
        digest = hashlib.sha256(json.dumps([body["messages"], body["seed"]]).encode()).digest()
        return choices[digest[0] % len(choices)]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()
