# SPDX-License-Identifier: Apache-2.0
"""A forked process is to its starter what a Python process of its own would be."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tests.env.waiting import until
from verl_kernel.cpu import fork_client

SERVER = """
from verl_kernel.cpu import fork_server
fork_server.MODULES = ("json", "no_such_module")
fork_server.main()
"""
WAIT_S = 120.0


@pytest.fixture(scope="module")
def server():
    """A server that has little imported, and its name."""
    name = f"verl_kernel_test_{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("\0" + name)
        listener.listen()
        command = [sys.executable, "-c", SERVER, str(listener.fileno()), str(os.getpid())]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()])
    yield psutil.Process(process.pid), name
    process.kill()
    process.wait()


def client(name: str, *argv: str, **options) -> subprocess.Popen:
    environment = {**os.environ, fork_client.ADDRESS: name, **options.pop("variables", {})}
    return subprocess.Popen(
        [sys.executable, fork_client.__file__, *argv], env=environment, stdout=subprocess.PIPE, text=True, **options
    )


def run(name: str, code: str, *argv: str, **options) -> tuple[int, dict]:
    """Exit status of `python -c code`, and what it printed as JSON, the process's parent added."""
    code = f"import json, os, sys\nsaid = {{'parent': os.getppid()}}\n{code}\nprint(json.dumps(said))"
    done = client(name, "-B", "-c", code, *argv, **options)
    output, _ = done.communicate(timeout=WAIT_S)
    return done.returncode, json.loads(output) if output else {}


@pytest.mark.slow
def test_it_has_arguments_environment_folder_and_modules(server, tmp_path):
    process, name = server
    code = "said |= {'argv': sys.argv, 'mark': os.environ['MARK'], 'cwd': os.getcwd(), 'main': __name__}"
    status, said = run(name, code, "--one", "two", cwd=tmp_path, variables={"MARK": "7"})
    assert (status, said.pop("parent")) == (0, process.pid)
    assert said == {"argv": ["-c", "--one", "two"], "mark": "7", "cwd": str(tmp_path), "main": "__main__"}


def test_open_files_keep_their_numbers(server):
    ours, theirs = os.pipe()
    done = client(server[1], "-c", f"import os; os.write({theirs}, b'there')", pass_fds=[theirs])
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        assert pipe.read() == "there"  # and its end: the client keeps no copy
    assert done.wait(WAIT_S) == 0


@pytest.mark.parametrize(("code", "status"), [
    ("sys.exit(3)", 3), ("raise ValueError('expected')", 1), ("os.kill(os.getpid(), 9)", -9), ("sys.exit('x')", 1),
])  # fmt: skip
def test_it_ends_as_the_process_ends(server, code, status):
    assert run(server[1], code)[0] == status


def test_a_signal_to_the_client_reaches_the_process(server):
    code = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nprint('ready', flush=True)"
    done = client(server[1], "-c", f"{code}\nwhile True: time.sleep(0.1)")
    assert done.stdout.readline() == "ready\n"
    done.send_signal(signal.SIGTERM)
    assert done.wait(WAIT_S) == 5


def test_a_killed_client_takes_the_process_along(server):
    done = client(server[1], "-c", "import os, time\nprint(os.getpid(), flush=True)\nwhile True: time.sleep(0.1)")
    process = psutil.Process(int(done.stdout.readline()))
    assert process.ppid() == server[0].pid
    done.kill()
    done.wait()
    psutil.wait_procs([process], timeout=WAIT_S)
    assert not process.is_running()


def test_a_client_that_waits_for_no_answer_ends_no_other(server):
    process, name = server
    request = {"argv": ["-c", "while True: pass"], "env": {**os.environ}, "cwd": "/", "fds": [], "blocked": []}
    process.suspend()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.connect("\0" + name)
        gone.send(json.dumps(request).encode())
    process.resume()
    assert run(name, "said |= {'there': True}") == (0, {"parent": process.pid, "there": True})
    until(lambda: process.children() == [], WAIT_S)


def test_random_numbers_differ_from_process_to_process(server):
    code = "import random, numpy\nsaid |= {'numbers': [random.random(), numpy.random.random()]}"
    first, second = (run(server[1], code)[1]["numbers"] for _ in range(2))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_spawned_processes_are_forked_too(server, tmp_path):
    script = tmp_path / "spawns.py"
    script.write_text(
        "import multiprocessing, os\n"
        "def tell(queue): queue.put(os.getppid())\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=tell, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get(timeout=300), flush=True)\n"
        "    process.join()\n"
    )
    done = client(server[1], str(script), "--language=PYTHON")
    output, _ = done.communicate(timeout=WAIT_S)
    assert (done.returncode, int(output)) == (0, server[0].pid)


@pytest.mark.parametrize(
    "variables", [{"PYTHONHASHSEED": "5"}, {"LD_PRELOAD": "/lib/none.so"}, {fork_client.ADDRESS: "verl_kernel_nobody"}]
)
def test_what_needs_a_python_of_its_own_gets_one(server, variables):
    status, said = run(server[1], "", variables=variables)
    assert (status, said["parent"]) == (0, os.getpid())


def test_flags_of_the_interpreter_need_a_python_of_their_own():
    assert fork_client.python_program(["-B", "-c", "pass", "x"]) == ["-c", "pass", "x"]
    assert fork_client.python_program(["-X", "faulthandler", "-c", "pass"]) is None


def test_a_ray_worker_brings_its_variables():
    context = json.dumps({"py_executable": sys.executable, "env_vars": {"A": "1"}})
    argv = ["/ray/default_worker.py", "--a=b", f"--serialized-runtime-env-context={context}", "--language=PYTHON"]
    assert fork_client.ray_worker(argv) == (["/ray/default_worker.py", "--a=b"], {"A": "1"})


@pytest.mark.parametrize("context", [
    {"py_executable": "/other/python"}, {"command_prefix": ["nsys"]}, {"override_worker_entrypoint": "x.py"},
    {"env_vars": {"A": "${HOME}/x"}},
], ids=str)  # fmt: skip
def test_a_ray_worker_with_a_start_of_its_own_is_left_to_ray(context):
    argv = ["/ray/default_worker.py", f"--serialized-runtime-env-context={json.dumps(context)}", "--language=PYTHON"]
    assert fork_client.ray_worker(argv)[0] is None


@pytest.mark.slow
def test_the_server_ends_with_its_driver(tmp_path):
    driver = (
        "import sys\nfrom verl_kernel.cpu import fork_server, preload\n"
        "print(preload.start({}).pid, flush=True)\nsys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    server = psutil.Process(int(process.stdout.readline()))
    until(lambda: "fork_server" in " ".join(server.cmdline()))
    process.kill()
    process.wait()
    psutil.wait_procs([server], timeout=WAIT_S)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
