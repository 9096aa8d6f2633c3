# SPDX-License-Identifier: Apache-2.0
"""A seccomp filter, written as classic BPF, that forbids system calls to a runner.

Refused calls fail with EPERM (clone3 with ENOSYS, so that libc falls back to clone, whose flags can be read).
Connections, signals to others and kernel interfaces are forbidden. So are processes, programs, threads and memory
outside an address space without `IsolationProfile.may_start_programs`, because the clock does not see work on another
thread. The sockets that `IsolationProfile.may_listen` allows cannot reach any other process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct

from verl_kernel.env.sandbox.isolation import IsolationProfile
from verl_kernel.env.sandbox.libc import PR_SET_SECCOMP, prctl

_FILTER_MODE = 2
_LOAD, _JUMP_EQ, _JUMP_GE, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NR, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32
_AF_UNIX, _TYPE_BITS, _STREAM, _SEQPACKET = 1, 0xF, 1, 5
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000
"""Flags of clone(2) for all kinds of namespaces (include/uapi/linux/sched.h)."""

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# name: (x86_64, aarch64); None where the architecture has no such call
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "kcmp": (312, 272),
    "setrlimit": (160, 164), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "setsid": (112, 157), "setpgid": (109, 154),
    "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104), "reboot": (169, 142),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "shmget": (29, 194), "msgget": (68, 186),
    "mq_open": (240, 180), "inotify_init1": (294, 26), "fanotify_init": (300, 262), "personality": (135, 92),
}  # fmt: skip
_PROGRAMS: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "semget": (64, 190),
}  # fmt: skip
_OF_A_JUDGE = ("pidfd_open", "pidfd_send_signal", "setrlimit", "tkill", "setsid", "setpgid")
"""Calls by which a judge starts and ends its processes; landlock, or a namespace, limits whom they reach."""
_PRCTL, _PARENT_DEATH = (157, 167), 1
_CLONE, _CLONE3, _KILL_CALL, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (62, 129), (234, 131), (302, 261)
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)

_Instruction = tuple[int, int, int, int]


def restrict(profile: IsolationProfile) -> None:
    """Install the filter on this process; it needs no_new_privs.

    Raises:
        OSError: the kernel refuses, or the architecture has no table here.
    """
    lines = program(platform.machine(), os.getpid(), profile)
    code = b"".join(struct.pack("=HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, _FILTER_MODE, header)


def program(machine: str, pid: int, profile: IsolationProfile) -> list[_Instruction]:
    """Return the filter for one process: BPF instructions (code, jump if true, jump if false, operand).

    Raises:
        OSError: the architecture has no table here.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    audit, column = _ARCHITECTURES[machine]
    lines = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQ, 1, 0, audit), _return(_KILL), (_LOAD, 0, 0, _NR)]
    lines += [(_JUMP_GE, 0, 1, _X32), _deny(errno.ENOSYS)]  # the x32 ABI would reach every call by another number
    for name, numbers in (_NUMBERS if profile.may_start_programs else {**_NUMBERS, **_PROGRAMS}).items():
        if (number := numbers[column]) is not None and not (profile.may_judge and name in _OF_A_JUDGE):
            lines += _when(number, [_deny(errno.EPERM)])
    lines += _when(_CLONE3[column], [_deny(errno.ENOSYS)])  # ENOSYS makes libc fall back to clone
    lines += _when(_CLONE[column], _no_namespace() if profile.may_start_programs else [_deny(errno.EPERM)])
    lines += _when(_SOCKETPAIR[column], _connected_socket())
    lines += _when(_SOCKET[column], _connected_socket() if profile.may_listen else [_deny(errno.EPERM)])
    if profile.may_judge:
        return [*lines, *_when(_PRCTL[column], _dies_with_its_parent()), _return(_ALLOW)]
    for call, signal_at in ((_KILL_CALL, _ARG1), (_TGKILL, _ARG2)):
        lines += _when(call[column], _only_to_itself(pid, signal_at))
    return [*lines, *_when(_PRLIMIT[column], _no_new_limit()), _return(_ALLOW)]


def _no_namespace() -> list[_Instruction]:
    """Allow processes and threads in the namespaces of this one: in new ones a process may do what root may."""
    return [(_LOAD, 0, 0, _ARG0), (_AND, 0, 0, _NEW_NAMESPACES), (_JUMP_EQ, 1, 0, 0), _deny(errno.EPERM)]


def _connected_socket() -> list[_Instruction]:
    """Allow only unix sockets that must be connected before they send; a datagram socket could send to any bound path.

    The kernel reads family and type as 32 bits and ignores the upper halves, and so does the filter.
    """
    family = [(_LOAD, 0, 0, _ARG0), (_JUMP_EQ, 1, 0, _AF_UNIX), _deny(errno.EPERM)]
    kind = [(_LOAD, 0, 0, _ARG1), (_AND, 0, 0, _TYPE_BITS), (_JUMP_EQ, 2, 0, _STREAM), (_JUMP_EQ, 1, 0, _SEQPACKET)]
    return [*family, *kind, _deny(errno.EPERM)]


def _only_to_itself(pid: int, signal_at: int) -> list[_Instruction]:
    """Allow signals to the process itself except SIGKILL: a candidate that sends one gets an error to report."""
    own = [(_LOAD, 0, 0, _ARG0), (_JUMP_EQ, 1, 0, pid), _deny(errno.EPERM)]
    return [*own, (_LOAD, 0, 0, signal_at), (_JUMP_EQ, 0, 1, signal.SIGKILL), _deny(errno.EPERM)]


def _dies_with_its_parent() -> list[_Instruction]:
    """Refuse any signal at the parent's end but SIGKILL: a process must not outlive who would end it."""
    option = [(_LOAD, 0, 0, _ARG0), (_JUMP_EQ, 1, 0, _PARENT_DEATH), _return(_ALLOW)]
    return [*option, (_LOAD, 0, 0, _ARG1), (_JUMP_EQ, 1, 0, signal.SIGKILL), _deny(errno.EPERM)]


def _no_new_limit() -> list[_Instruction]:
    low = [(_LOAD, 0, 0, _ARG2), (_JUMP_EQ, 1, 0, 0), _deny(errno.EPERM)]
    high = [(_LOAD, 0, 0, _ARG2 + 4), (_JUMP_EQ, 1, 0, 0), _deny(errno.EPERM)]
    return low + high


def _when(number: int, body: list[_Instruction]) -> list[_Instruction]:
    """Return instructions that run `body` if the call has this number; a body that falls through allows the call."""
    body = body if body[0][0] == _RETURN else [*body, _return(_ALLOW)]
    return [(_JUMP_EQ, 0, len(body), number), *body]


def _return(value: int) -> _Instruction:
    return (_RETURN, 0, 0, value)


def _deny(code: int) -> _Instruction:
    return _return(_ERRNO | code)
