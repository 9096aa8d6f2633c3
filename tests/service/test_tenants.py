# SPDX-License-Identifier: Apache-2.0
"""What a tenant's reference can do to a service and to its other tenants, through HTTP."""

from contextlib import contextmanager

import psutil
import pytest

from tests.env.waiting import until
from tests.service.serving import Started, client, keys_file
from tests.tiers import thinned
from verl_kernel.env.conformance.programs import HONEST, REFERENCE, WRONG, candidate
from verl_kernel.env.judge.processes.zygote import cache_folder
from verl_kernel.env.sandbox import namespaces

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SECRET = "a-secret-of-the-service"
_HOSTILE = """
import ctypes, glob, os, resource, signal, socket, struct, subprocess, sys, tempfile, time
import verl_kernel
KEYS, STATE, CACHE, SERVICE, PORT, SECRET = {known!r}
libc = ctypes.CDLL(None)

def called(result):
    if result < 0:
        raise OSError("refused")
    return result

def names(pattern, text):
    found = []
    for path in glob.glob(pattern):
        try:
            found += [path] if text in open(path, "rb").read() else []
        except OSError:
            pass
    return found[0]
"""
REFUSED = {
    "keys": "open(KEYS).read()",
    "state": "open(STATE + '/record.sqlite', 'rb').read(1)",
    "folder of the state": "os.listdir(STATE)",
    "new file in the state": "open(STATE + '/record.sqlite-journal', 'w')",
    "environment": "os.environ['SECRET_OF_A_SERVICE']",
    "environment of others": "names('/proc/[0-9]*/environ', SECRET.encode())",
    "memory of the service": "open(f'/proc/{SERVICE}/mem', 'rb')",
    "folder of the service": "os.listdir(f'/proc/{SERVICE}/cwd')",
    "memory of what ends it": "open('/proc/1/mem', 'rb').seek(1 << 12)",
    "connection to the service": "socket.create_connection(('127.0.0.1', PORT))",
    "socket of the machine": "socket.socket(socket.AF_UNIX)",
    "datagrams": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "signal to the service": "os.kill(SERVICE, signal.SIGTERM)",
    "trace of the service": "called(libc.ptrace(16, SERVICE, 0, 0))",
    "native code of all": "open(CACHE + '/poison', 'w')",
    "names of native code": "os.listdir(CACHE)",
    "package": "open(verl_kernel.__file__, 'a')",
    "folders of other tasks": "os.listdir(os.path.dirname(tempfile.gettempdir()))",
    "temporary files of the machine": "open('/tmp/of_a_reference', 'w')",
    "shared memory of the machine": "open('/dev/shm/of_a_reference', 'w')",
    "users of the machine": "open('/etc/passwd').read()",
    "other user": "os.setuid(1)",
    "namespaces": "called(libc.unshare(0x10000000))",
    "namespaces of a child": "called(libc.syscall(56, 0x10000011, 0, 0, 0, 0)) or os._exit(0)",
    "mounts": "called(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
    "life beyond its owner's": "called(libc.prctl(1, 0, 0, 0, 0))",
    "settings of the kernel": "open('/proc/sys/kernel/core_pattern', 'w')",
    "place before others in want of memory": "open('/proc/self/oom_score_adj', 'w').write('0')",
    "more open files": "resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))",
}
IN_NAMESPACES = {
    "command line of the service": "names('/proc/[0-9]*/cmdline', KEYS.encode())",
    "descriptors of the service": "os.listdir(f'/proc/{SERVICE}/fd')",
    "existence of the service": "open(f'/proc/{SERVICE}/status')",
}
ALLOWED = {"own file": "open('note', 'w').write('x')", "own process": "subprocess.run(['/bin/true'], check=True)"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tenants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_A_SERVICE", SECRET)
        with Started(folder, f"--keys={keys_file(folder)}") as service:
            service.folder = folder
            yield service


def hostile(service, code: str) -> str:
    """A reference that runs this code when it is loaded."""
    port = int(service.address.rpartition(":")[2])
    known = str(service.folder / "keys"), str(service.folder / "state"), str(cache_folder()), service.process.pid, port
    return f"{_HOSTILE.format(known=(*known, SECRET))}\n{code}\n{REFERENCE}"


def ended(service, tenant: str, reference: str, source: str, task_id: str = "t"):
    with client(service.address, tenant) as http:
        asked = {"task": {"reference": reference, "task_id": task_id}, "source": source}
        (found,) = http.post("/v1/evaluations", json={"evaluations": [asked], "wait_s": 30}).json()["evaluations"]
        while found["state"] == "waiting":
            found = http.get(f"/v1/evaluations/{found['id']}?wait_s=30").json()
    return found


def status(service, tenant: str, reference: str, source: str) -> str:
    found = ended(service, tenant, reference, source)
    return found["problem"]["message"] if found["result"] is None else found["result"]["status"]


def others(service, mark: str) -> list[str]:
    """Verdicts on an honest and a wrong program of another tenant."""
    return [status(service, "two", f"{REFERENCE}# {mark}\n", source) for source in (HONEST, WRONG)]


def test_a_reference_reaches_nothing_that_is_not_its_own(service):
    attempts = {**REFUSED, **(IN_NAMESPACES if namespaces.are_granted() else {}), **ALLOWED}
    code = f"""
done = []
for number, attempt in enumerate({list(attempts.values())!r}):
    try:
        eval(attempt)
        done.append(number)
    except Exception:
        pass
raise ValueError(f"done: {{done}}.")
"""
    said = ended(service, "one", hostile(service, code), HONEST)["problem"]["message"]
    numbers = eval(said.partition("done: ")[2].rpartition(".")[0])
    assert [list(attempts)[number] for number in numbers] == list(ALLOWED)
    assert others(service, "reach") == ["ok", "incorrect"]


_PATCH = """
from verl_kernel.env.judge import output_check
agreed = output_check.compare
def compare(wanted, actual, *rest):
    return max((agreed(wanted, given, *rest) for given in (actual, actual / 2)), key=lambda each: each.ok)
output_check.compare = compare
"""


def test_a_patched_judge_judges_no_other_task(service):
    twice = candidate("return self.launch(x, y) * 2")
    assert status(service, "one", hostile(service, _PATCH), twice) == "ok"  # its own verdicts are its own
    assert others(service, "patch") == ["ok", "incorrect"]
    assert status(service, "one", f"{REFERENCE}# another\n", twice) == "incorrect"


_BOMB = """
started = []
try:
    while len(started) < 3000:
        started.append(os.posix_spawn("/bin/sleep", ["sleep", "3600"], {}, setsid=True))
except OSError:
    pass
for one in started[-50:]:  # the judge needs some to answer
    os.kill(one, signal.SIGKILL)
    os.waitpid(one, 0)
raise ValueError(f"{len(started)} processes")
"""


def test_what_a_reference_starts_is_bounded_and_ends_with_it(service):
    said = ended(service, "one", hostile(service, _BOMB), HONEST)["problem"]["message"]
    assert int(said.split("ValueError: ")[1].split()[0]) < 1000
    until(lambda: len(psutil.Process(service.process.pid).children(recursive=True)) < 50)
    assert others(service, "bomb") == ["ok", "incorrect"]


@contextmanager
def counts_of_judges(service):
    """Whether a judge was put out of rotation."""
    with client(service.address, "operator") as http:
        before = http.get("/v1/stats").json()["quarantines"]
        yield
        assert http.get("/v1/stats").json()["quarantines"] == before


@pytest.mark.parametrize(
    "code", thinned(["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "os._exit(77)"], every=3)
)
def test_a_reference_ends_only_its_own_judge(service, code):
    with counts_of_judges(service):
        found = ended(service, "one", hostile(service, code), HONEST)
        if found["state"] == "failed":
            assert "takes longer than" in found["problem"]["message"]
        else:
            assert found["result"]["status"] == "infra_error"
        assert others(service, code) == ["ok", "incorrect"]


@pytest.mark.exhaustive
def test_an_error_of_any_length_is_cut(service):
    said = ended(service, "one", hostile(service, "raise ValueError('x' * 20_000_000)"), HONEST)["problem"]["message"]
    assert len(said) <= 2000
    assert others(service, "length") == ["ok", "incorrect"]


def test_all_a_judge_started_ends_with_the_service(tmp_path):
    with Started(tmp_path, f"--keys={keys_file(tmp_path)}") as service:
        service.folder = tmp_path
        left = _BOMB.replace("< 3000", "< 80").replace("raise ValueError", "print")
        assert status(service, "one", hostile(service, left), HONEST) == "ok"
        running = psutil.Process(service.process.pid).children(recursive=True)
        assert len(running) > 10
        service.process.kill()
        service.process.wait()
        assert psutil.wait_procs(running, timeout=120)[1] == []
