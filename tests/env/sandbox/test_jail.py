# SPDX-License-Identifier: Apache-2.0
"""Each test tries something in a process that has entered the jail."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap

import pytest

from verl_kernel.env.sandbox import jail, landlock, seccomp
from verl_kernel.env.sandbox.isolation import IsolationProfile

ALL = [mechanism.name for mechanism in jail.MECHANISMS]
_ENTER = "report = jail.enter(jail.Limits(sys.argv[1], 256, IsolationProfile()))"
_SETUP = f"""
import ctypes, os, resource, signal, socket, subprocess, sys, tempfile, threading
from verl_kernel.env.sandbox import jail
from verl_kernel.env.sandbox.isolation import IsolationProfile
def start_thread():
    try:
        threading.Thread(target=print).start()
    except RuntimeError as exc:
        raise OSError(str(exc)) from exc

{_ENTER}
"""
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
_PLACE = """
import ctypes
print(open('/proc/self/oom_score_adj').read().strip(), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), os.getuid() >= 61184)
"""
X86_64 = {"socket": 41, "connect": 42, "accept": 43, "bind": 49, "listen": 50, "socketpair": 53, "accept4": 288}
AARCH64 = {"socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202, "connect": 203, "accept4": 242}
UNIX, INET, NETLINK, STREAM, DATAGRAM, RAW, SEQPACKET, CLOEXEC = 1, 2, 16, 1, 2, 3, 5, 0o2000000
UPPER_HALF, MACHINES = 1 << 32, [("x86_64", 0xC000003E, X86_64), ("aarch64", 0xC00000B7, AARCH64)]


def jailed(code: str, scratch, setup: str = _SETUP) -> subprocess.CompletedProcess[str]:
    program = setup + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program, str(scratch)], capture_output=True, text=True, timeout=300)


REFUSED = {
    "seccomp": [
        "socket.socket()",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "os.fork()",
        "start_thread()",
        "subprocess.run(['/bin/true'])",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 0)",
        "os.pidfd_open(os.getppid())",
        "os.memfd_create('kept')",
    ],
    "landlock": [
        "open('/proc/self/oom_score_adj', 'w').write('0')",
        "open('/etc/passwd').read()",
        "os.listdir('/')",
        "open('/dev/shm/leak', 'w')",
        "open(f'/proc/{os.getppid()}/environ').read()",
    ],
    "rlimits": [
        "bytearray(1 << 30)",
        "open('big', 'wb').write(bytes(1 << 22))",
        "[open('/dev/null') for _ in range(100)]",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))",
    ],
    "no_capabilities": ["os.chroot('/')"],
}
ATTEMPTS = [(needs, expression) for needs, group in REFUSED.items() for expression in group]
_ATTEMPT = """
import json
def outcome(expression):
    try:
        return f"allowed: {eval(expression)}"
    except (OSError, MemoryError, ValueError):
        return "refused"

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
print(json.dumps({"report": report, **{text: outcome(text) for text in %r}}))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, str]:
    code = _ATTEMPT % [expression for _, expression in ATTEMPTS]
    done = jailed(code, tmp_path_factory.mktemp("probe"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("mechanism", "expression"), ATTEMPTS)
def test_the_jail_refuses(mechanism, expression, outcomes, needs):
    needs(mechanism)
    assert outcomes[expression] == "refused"


def test_honest_work_goes_on(tmp_path):
    code = """
    import json, decimal
    open("note", "w").write("x")
    print(os.getcwd() == os.path.realpath(sys.argv[1]), len(os.urandom(4)), os.getpgid(0) == os.getpid())
    """
    done = jailed(code, tmp_path)
    assert done.stdout.split() == ["True", "4", "True"], done.stderr
    assert jailed("os.abort()", tmp_path).returncode == -6  # an abort is still an abort


@pytest.mark.parametrize("is_link", [False, True])
def test_libraries_are_read_wherever_they_were_imported_from(needs, tmp_path, is_link):
    needs("landlock")
    scratch, site, package = (tmp_path / name for name in ("scratch", "site", "kept/triton"))
    for folder in (scratch, site, package):
        folder.mkdir(parents=True)
    for path in (package / "__init__.py", package / "ptxas", tmp_path / "neighbour"):
        path.write_text("")
    if is_link:
        (site / "triton").symlink_to(package)
    else:
        package.rename(site / "triton")
    code = f"""
    print(open({str(site / "triton" / "ptxas")!r}).read() == "")
    try:
        open({str(tmp_path / "neighbour")!r})
    except PermissionError:
        print("refused")
    """
    done = jailed(code, scratch, f"import sys; sys.path.insert(0, {str(site)!r}); import triton{_SETUP}")
    assert done.stdout.split() == ["True", "refused"], done.stderr


def test_the_network_is_out_of_reach(needs, tmp_path):
    needs("network_namespace")
    done = jailed("print(*(line.split()[0] for line in open('/proc/self/net/dev').readlines()[2:]))", tmp_path)
    assert done.stdout.split() == ["lo:"], done.stderr


@pytest.fixture
def needs(outcomes):
    """Leave a test out where this machine lacks a mechanism."""

    def check(mechanism: str) -> None:
        if mechanism not in outcomes["report"]:
            pytest.skip(f"this machine offers no {mechanism}")

    return check


def test_the_report_names_mechanisms_in_order(outcomes):
    assert outcomes["report"] == [name for name in ALL if name in outcomes["report"]]
    assert {"process_group", "death_signal", "no_dump", "rlimits", "no_new_privs"} <= set(outcomes["report"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_runner_is_a_user_of_its_own_with_its_own_files(tmp_path):
    (tmp_path / "kernel.py").write_text("")
    code = """
    sys.stdout.flush()
    if os.fork() == 0:
        jail._is_open = lambda path: True
        jail._own_user(jail.Limits(sys.argv[1], 256, IsolationProfile()))
        print(os.getuid(), os.geteuid(), os.stat("kernel.py").st_uid, os.getgroups(), sep=":")
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    """
    done = jailed(code, tmp_path, _SETUP.replace(_ENTER, "os.chdir(sys.argv[1])"))
    assert done.stdout, done.stderr
    uid, effective, owner, groups = done.stdout.strip().split(":")
    assert uid == effective == owner, done.stderr
    assert int(uid) >= 61184, done.stderr
    assert groups == "[]", done.stderr


def test_a_runner_goes_first_where_memory_runs_out(tmp_path):
    assert jailed(_PLACE, tmp_path).stdout.split()[:2] == ["1000", "0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_of_its_own_goes_first_too(tmp_path):
    alone = _SETUP.replace("report =", "jail.hide_memory()\njail._is_open = lambda path: True\nreport =")
    with tempfile.TemporaryDirectory() as scratch:  # pytest's own are closed to other users
        done = jailed(_PLACE, scratch, alone)
    assert done.stdout.split() == ["1000", "0", "True"], done.stderr


def test_a_refused_mechanism_is_left_out_of_the_report(tmp_path, monkeypatch):
    def refuse(limits):
        raise OSError(38, "not here")

    monkeypatch.setattr(jail, "MECHANISMS", (jail.Mechanism("a", refuse), jail.Mechanism("b", lambda limits: None)))
    monkeypatch.chdir(tmp_path)
    assert jail.enter(jail.Limits(str(tmp_path), 1, IsolationProfile())) == ["b"]


def test_a_machine_without_landlock_says_so(monkeypatch):
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(OSError, match="no Landlock"):
        landlock.restrict([])
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64", 1, IsolationProfile())


def verdict(program, number, args=(), arch=0xC000003E):
    """A naive interpreter of the BPF subset the filter uses."""
    data = {0: number, 4: arch, **{16 + 8 * i: a & 0xFFFFFFFF for i, a in enumerate(args)}}
    data |= {20 + 8 * i: a >> 32 for i, a in enumerate(args)}
    accumulator = pc = 0
    while True:
        code, yes, no, operand = program[pc]
        pc += 1
        if code == 0x06:
            return operand
        if code == 0x20:
            accumulator = data.get(operand, 0)
        elif code == 0x54:
            accumulator &= operand
        else:
            pc += yes if {0x15: accumulator == operand, 0x35: accumulator >= operand}[code] else no


ANY, PROGRAMS = IsolationProfile(), IsolationProfile(may_start_programs=True)
TASKS_JUDGE = IsolationProfile(may_start_programs=True, may_judge=True)


@pytest.mark.parametrize(("profile", "number", "args", "expected"), [
    (ANY, 0, (), ALLOW),  # read
    (ANY, 9, (), ALLOW),  # mmap
    (ANY, 41, (2,), EPERM),  # socket
    (ANY, 56, (0x11,), EPERM),  # clone of a process
    (ANY, 56, (0x3D0F00,), EPERM),  # clone of a thread
    (ANY, 435, (), ENOSYS),  # clone3
    (ANY, 59, (), EPERM),  # execve
    (ANY, 62, (77,), ALLOW),  # kill oneself
    (ANY, 62, (78,), EPERM),
    (ANY, 234, (77, 80, 6), ALLOW),  # abort
    (ANY, 234, (1, 1, 9), EPERM),
    (ANY, 302, (0, 7, 0, 1), ALLOW),  # getrlimit
    (ANY, 302, (0, 7, 1 << 40, 0), EPERM),  # setrlimit
    (ANY, 0x40000000 | 41, (), ENOSYS),  # the x32 door
    (PROGRAMS, 59, (), ALLOW),
    (PROGRAMS, 56, (0x3D0F00,), ALLOW),
    (PROGRAMS, 56, (0x10000011,), EPERM),  # a namespace of users
    (PROGRAMS, 435, (), ENOSYS),
    (TASKS_JUDGE, 62, (78, 9), ALLOW),  # kill: landlock says whom
    (TASKS_JUDGE, 112, (), ALLOW),  # setsid
    (TASKS_JUDGE, 434, (78,), ALLOW),  # pidfd_open
    (TASKS_JUDGE, 160, (7,), ALLOW),  # setrlimit
    (TASKS_JUDGE, 157, (1, 9), ALLOW),  # to be killed at the parent's end
    (TASKS_JUDGE, 157, (1, 0), EPERM),  # to outlive it
    (TASKS_JUDGE, 157, (4, 0), ALLOW),  # another attribute
    (TASKS_JUDGE, 56, (0x20000011,), EPERM),  # a namespace of processes
    (TASKS_JUDGE, 41, (2,), EPERM),  # socket
    (TASKS_JUDGE, 101, (), EPERM),  # ptrace
    (TASKS_JUDGE, 272, (), EPERM),  # unshare
])  # fmt: skip
def test_the_filter(profile, number, args, expected):
    assert verdict(seccomp.program("x86_64", 77, profile), number, args) == expected


def test_the_filter_kills_foreign_architectures():
    assert verdict(seccomp.program("x86_64", 77, ANY), 0, arch=0x40000003) == KILL
    assert verdict(seccomp.program("aarch64", 77, ANY), 198, arch=0xC00000B7) == EPERM


@pytest.mark.parametrize(("machine", "arch", "numbers"), MACHINES)
@pytest.mark.parametrize("may_listen", [False, True])
def test_the_sockets_of_a_profile(machine, arch, numbers, may_listen):
    lines = seccomp.program(machine, 77, IsolationProfile(may_listen=may_listen))

    def asked(call, *args):
        return verdict(lines, numbers[call], args, arch)

    own = ALLOW if may_listen else EPERM
    assert asked("socket", UNIX, SEQPACKET | CLOEXEC) == asked("socket", UNIX, STREAM) == own
    for family, kind in ((INET, STREAM), (NETLINK, RAW), (UNIX, DATAGRAM), (UNIX, RAW | CLOEXEC), (INET, SEQPACKET)):
        assert asked("socket", family, kind) == asked("socketpair", family, kind) == EPERM
    assert asked("socket", INET | UPPER_HALF, STREAM | UPPER_HALF) == EPERM  # the kernel drops the upper halves
    assert asked("socketpair", UNIX, STREAM) == asked("bind") == asked("listen") == ALLOW
    assert asked("connect") == asked("accept") == asked("accept4") == EPERM


def test_the_environment_holds_no_secret():
    scrubbed = landlock.environment({"TRITON_INTERPRET": "1"}, "/scratch")
    assert scrubbed["HOME"] == scrubbed["TMPDIR"] == scrubbed["TRITON_CACHE_DIR"] == "/scratch"
    assert set(scrubbed) & set(os.environ) <= {"PATH", "HOME", "TMPDIR", "LANG", "TRITON_INTERPRET"}
