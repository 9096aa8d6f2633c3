# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel serve` as a process: started, killed, told to end."""

import signal
import socket
import threading

import psutil
import pytest
import uvicorn

from tests.commands.lines import invoked
from tests.service.serving import GYM, Pool, Started, client, keys_file, wait_for
from verl_kernel.client import RemoteGym
from verl_kernel.env.conformance.cases import TASK
from verl_kernel.env.conformance.programs import HONEST, REFERENCE, SLEEPS
from verl_kernel.service.app import Service
from verl_kernel.service.keys import Keys
from verl_kernel.service.options import ServiceOptions
from verl_kernel.service.record import ServiceRecord
from verl_kernel.service.server import EndingServer

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def posted(http, source):
    asked = {"task": {"reference": REFERENCE, "task_id": "t"}, "source": source}
    return http.post("/v1/evaluations", json={"evaluations": [asked], "wait_s": 0.0}).json()["evaluations"][0]


def children(process):
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.exhaustive
def test_accepted_work_survives_a_kill_of_the_service(tmp_path):
    with Started(tmp_path) as first, client(first.address) as http:
        names = [posted(http, f"{HONEST}# {number}\n")["id"] for number in range(5)]
        left = children(first.process)
        first.process.kill()
        first.process.wait()
    psutil.wait_procs(left, timeout=300)
    assert not any(process.is_running() for process in left), "a judge outlives its service"
    with Started(tmp_path) as second, client(second.address) as http:
        found = [http.get(f"/v1/evaluations/{name}?wait_s=60").json() for name in names]
    assert [each["result"]["status"] for each in found] == ["ok"] * 5


@pytest.mark.exhaustive
def test_a_client_does_not_notice_a_restart(tmp_path):
    with Started(tmp_path) as first:
        port = first.address.rpartition(":")[2]
        with RemoteGym(first.address) as gym:
            waiting = gym._loop.submit(all_of(gym, 6))
            wait_for(lambda: gym.stats().evaluations)
            first.process.kill()
            first.process.wait()
            with Started(tmp_path, f"--port={port}"):
                assert [result.status.value for result in waiting.result(timeout=300)] == ["ok"] * 6


async def all_of(gym, count):
    return [await gym.evaluate(TASK, f"{HONEST}# {number}\n") for number in range(count)]


@pytest.mark.exhaustive
def test_told_to_end_it_finishes_what_it_judges(tmp_path):
    with Started(tmp_path) as service, client(service.address) as http:
        name = posted(http, HONEST)["id"]
        left = children(service.process)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=300) == 0, service.said
        # A helper of a judge (multiprocessing's resource tracker) ends a moment after what it watches.
        assert psutil.wait_procs(left, timeout=300)[1] == []
        assert "Traceback" not in service.said
    with Started(tmp_path) as service, client(service.address) as http:
        assert http.get(f"/v1/evaluations/{name}").json()["state"] == "done"


def test_told_to_end_it_answers_until_its_work_has_ended(tmp_path):
    pool, record = Pool(), ServiceRecord(tmp_path)
    pool.open.clear()
    service = Service(pool, record, Keys({}), ServiceOptions(state=str(tmp_path)), GYM)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = EndingServer(uvicorn.Config(service.app(), log_level="warning", lifespan="on"), service)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_for(lambda: server.started)
        with client(f"http://127.0.0.1:{listener.getsockname()[1]}") as http:
            name = posted(http, HONEST)["id"]
            server.handle_exit(signal.SIGTERM, None)
            body = {"evaluations": [{"task": {"reference": REFERENCE}, "source": "another"}]}
            refusal = http.post("/v1/evaluations", json=body)
            assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "5")
            assert http.get("/ready").status_code == 503
            assert http.get(f"/v1/evaluations/{name}").json()["state"] == "waiting"
            pool.open.set()
            assert http.get(f"/v1/evaluations/{name}?wait_s=60").json()["state"] == "done"
        thread.join(timeout=300)
    record.close()
    assert not thread.is_alive()


@pytest.mark.exhaustive
def test_what_takes_too_long_is_left_for_the_next_one(tmp_path):
    with Started(tmp_path, "--grace-s=0.5") as service, client(service.address) as http:
        name = posted(http, SLEEPS)["id"]
        wait_for(lambda: http.get("/v1/stats").json()["evaluations"])
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=300) == 0, service.said
        assert "Traceback" not in service.said
    with Started(tmp_path, "--timeout=3") as service, client(service.address) as http:
        assert http.get(f"/v1/evaluations/{name}?wait_s=60").json()["result"]["status"] == "timeout"


def test_keys_are_asked_for_and_a_taken_port_is_named(tmp_path):
    with Started(tmp_path, f"--keys={keys_file(tmp_path)}") as service:
        with client(service.address) as http:
            assert http.get("/v1/options").status_code == 401
        with client(service.address, "one") as http:
            assert http.get("/v1/options").json()["device"] == "cpu"
        port = service.address.rpartition(":")[2]
        done = invoked("serve", f"--port={port}", f"--state={tmp_path / 'b'}", "--device=cpu", exit_code=2)
    assert f"--port is {port}, where nothing can listen (Address already in use): name another port" in done.stderr
