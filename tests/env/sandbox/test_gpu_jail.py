# SPDX-License-Identifier: Apache-2.0
"""The jail of a runner on a GPU, entered by real processes on any machine: files stand for the device nodes."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from verl_kernel.env import granted_isolation

_SETUP = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, threading
from verl_kernel.env.sandbox import gpu_isolation
from verl_kernel.env.sandbox import jail
scratch, dev, own_user = sys.argv[1:]
if own_user:
    jail._is_open = lambda path: True
named = {"TRITON_PTXAS_PATH": dev + "-tools/ptxas", "LD_LIBRARY_PATH": dev + "-libraries:" + dev + "-gone"}
profile = gpu_isolation.profile({gpu_isolation.MINOR: "1", **named}, dev=dev)
report = jail.enter(jail.Limits(scratch, 256, profile))
libc = ctypes.CDLL(None, use_errno=True)

def unix(kind):
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(f"\\0cuda-uvmfd-test-{os.getpid()}-{kind}")
    made.listen(16)
    return made

def a_named_thread():
    stop, thread = threading.Event(), None
    thread = threading.Thread(target=stop.wait)
    thread.start()
    path = f"/proc/self/task/{thread.native_id}/comm"
    try:
        open(path, "w").write("cuda00001400006")
        return open(path).read().strip()
    finally:
        stop.set()
        thread.join()

def ptrace(request, pid):
    if libc.ptrace(request, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "refused")

def attempt(expression):
    try:
        return str(eval(expression))
    except OSError as exc:
        return f"refused {errno.errorcode[exc.errno]}"
"""
ALLOWED = {
    "unix(socket.SOCK_SEQPACKET).getsockname() != b''": "True",
    "a_named_thread()": "cuda00001400006",
    "open('/proc/sys/vm/mmap_min_addr').read().strip().isdigit()": "True",
    "os.close(os.open(dev + '/nvidia1', os.O_RDWR))": "None",
    "os.close(os.open(dev + '/nvidiactl', os.O_RDWR))": "None",
    "os.close(os.open(dev + '-tools/ptxas', os.O_RDONLY))": "None",
    "os.listdir(dev + '-libraries')": "['libcuda.so']",
    "subprocess.run(['/bin/true']).returncode": "0",
    "os.memfd_create('driver') > 2": "True",
    "[end.close() for end in socket.socketpair()]": "[None, None]",
}
REFUSED = {
    "seccomp": [
        "socket.socket(socket.AF_INET)",
        "socket.socket(socket.AF_INET6)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_RAW)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_UNIX).connect(os.environ['LISTENER'])",
        "socket.socket(socket.AF_UNIX).connect(unix(socket.SOCK_STREAM).getsockname())",
        "unix(socket.SOCK_STREAM | socket.SOCK_NONBLOCK).accept()",
        "ptrace(16, os.getppid())",
        "ptrace(0, 0)",
        "os.kill(os.getppid(), 0)",
        "os.setsid()",
    ],
    "landlock": [
        "os.open(dev + '/nvidia0', os.O_RDWR)",
        "os.open(dev + '/nvidia0', os.O_RDONLY)",
        "os.open(dev + '/nvidia10', os.O_RDONLY)",
        "os.open(dev + '/nvidia-caps/nvidia-cap1', os.O_RDONLY)",
        "os.open(dev + '-tools/secret', os.O_RDONLY)",
        "open(dev + '-libraries/libcuda.so', 'w')",
        "open(f'/proc/{os.getppid()}/comm', 'w')",
        "open(f'/proc/{os.getppid()}/task/{os.getppid()}/comm', 'w')",
        "open('/proc/self/comm', 'w')",
        "open('/dev/shm/leak', 'w')",
        "open('/etc/passwd')",
    ],
}


def enter(code, folder, own_user=False):
    """What a process prints that runs this code in the jail, with the files beneath `folder` / dev for nodes."""
    (scratch := folder / "scratch").mkdir()
    command = [sys.executable, "-c", _SETUP + textwrap.dedent(code), str(scratch), str(folder / "dev"), "1" * own_user]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "listener"))
        listener.listen()
        environment = {**os.environ, "LISTENER": str(folder / "listener")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make_nodes(folder):
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia10", "nvidia-caps/nvidia-cap1"):
        (node := folder / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        node.touch()
        node.chmod(0o666)


@pytest.fixture(scope="module")
def open_folder():
    """One that other users can look into, as runners of root's judges may be; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name)).chmod(0o755)
        yield folder


@pytest.fixture(scope="module")
def outcomes(open_folder):
    attempts = [*ALLOWED, *(expression for group in REFUSED.values() for expression in group)]
    code = f"print(json.dumps({{'report': report, **{{text: attempt(text) for text in {attempts!r}}}}}))"
    (folder := open_folder / "gpu").mkdir()
    make_nodes(folder)
    for name in ("dev-tools/ptxas", "dev-tools/secret", "dev-libraries/libcuda.so"):
        (path := folder / name).parent.mkdir(exist_ok=True)
        path.touch()
    (folder / "dev-gone").symlink_to(folder / "nowhere")
    return enter(code, folder)


@pytest.mark.parametrize("expression", ALLOWED)
def test_what_a_driver_does_is_allowed(expression, outcomes):
    assert outcomes[expression] == ALLOWED[expression]


@pytest.mark.slow
def test_all_mechanisms_of_this_machine_are_in_force(outcomes):
    assert outcomes["report"] == granted_isolation("cpu")


@pytest.mark.parametrize(("needs", "expression"), [(needs, one) for needs, group in REFUSED.items() for one in group])
def test_everything_else_stays_refused(needs, expression, outcomes):
    if needs not in outcomes["report"]:
        pytest.skip(f"this machine offers no {needs}")
    assert outcomes[expression] == ("refused EPERM" if needs == "seccomp" else "refused EACCES")


def test_the_folder_of_its_threads_is_held(tmp_path):
    """Else the kernel may forget it, and with it the rule that lets it be written, whenever it wants memory."""
    make_nodes(tmp_path)
    code = """
    links = [f"/proc/self/fd/{fd}" for fd in range(3, 16)]
    print(json.dumps([os.readlink(link) == f"/proc/{os.getpid()}/task" for link in links if os.path.lexists(link)]))
    """
    assert any(enter(code, tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_jailed_user_keeps_the_group_of_its_nodes(open_folder):
    """Its files under /proc belong to root, since no other process may look into it; its node is open to one group."""
    code = """
    opened = [attempt(f"os.close(os.open(dev + '/{name}', os.O_RDWR))") for name in ("nvidia1", "nvidiactl")]
    print(json.dumps([os.getuid(), os.getgroups(), a_named_thread(), opened]))
    """
    (folder := open_folder / "own").mkdir()
    make_nodes(folder)
    for node, group in (("nvidia1", 44), ("nvidiactl", 0)):
        os.chown(folder / "dev" / node, 0, group)
        (folder / "dev" / node).chmod(0o660)
    uid, groups, thread, opened = enter(code, folder, own_user=True)
    assert uid >= 61184
    assert groups == [44]
    assert thread == "cuda00001400006"
    assert opened == ["None", "refused EACCES"]  # root's group is never kept
