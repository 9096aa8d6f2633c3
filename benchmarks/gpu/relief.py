# SPDX-License-Identifier: Apache-2.0
"""A jail with something left out: whole layers, system calls that seccomp refuses, folders that Landlock closes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_kernel.env.sandbox import jail, landlock, seccomp

FOLDERS = ("/proc/self", "/proc", "/sys", "/dev", "/etc", "/run", "/var", "/opt", "/tmp", "/")
"""Tried one after another, narrow ones first."""
_SINGLE_CALLS = ("_SOCKET", "_SOCKETPAIR", "_CLONE", "_CLONE3", "_KILL_CALL", "_TGKILL", "_PRLIMIT")
_PROLOGUE = 6
"""Instructions of the filter before the first call is looked at: architecture and the second table of x86-64."""


@dataclass(frozen=True)
class Relief:
    """What is left out of the jail."""

    layers: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"without {', '.join(self.layers)}"] if self.layers else []
        words += [f"the system calls {', '.join(self.calls)} allowed"] if self.calls else []
        words += [f"{', '.join(self.readable)} readable"] if self.readable else []
        words += [f"{', '.join(self.writable)} writable"] if self.writable else []
        return "; ".join(words) or "all layers"

    def apply(self) -> None:
        """Change the jail of this process, which has not entered it yet."""
        kept = tuple(one for one in jail.MECHANISMS if one.name not in self.layers)
        jail.MECHANISMS = kept  # type: ignore[assignment]  # a constant of a certain length otherwise
        seccomp.program = _allowing(seccomp.program, self.calls)
        landlock.restrict = _wider(landlock.restrict, self.readable, self.writable)

    def also(self, **more: str) -> Relief:
        """This and one thing more."""
        return replace(self, **{name: (*getattr(self, name), value) for name, value in more.items()})


def refused_calls() -> dict[str, tuple[int | None, int | None]]:
    """Every system call that the filter looks at, with its numbers on x86-64 and aarch64."""
    single = {name: value for name, value in vars(seccomp).items() if name in _SINGLE_CALLS}
    return {
        **seccomp._NUMBERS,
        **seccomp._PROGRAMS,
        **{name.strip("_").lower(): value for name, value in single.items()},
    }


def further(relief: Relief, layer: str) -> Iterator[Relief]:
    """`relief` and one thing more that concerns this layer, one after another."""
    if layer == "seccomp":
        for name in refused_calls():
            if name not in relief.calls:
                yield relief.also(calls=name)
    if layer == "landlock":
        for kind in ("readable", "writable"):
            for folder in filter(os.path.exists, FOLDERS):
                if folder not in getattr(relief, kind):
                    yield relief.also(**{kind: folder})


def _allowing(program: Callable[..., list[Any]], calls: tuple[str, ...]) -> Callable[..., list[Any]]:
    """The same filter, which lets these calls pass before it looks at anything else."""

    def allowing(machine: str, *rest: Any) -> list[Any]:
        column = seccomp._ARCHITECTURES[machine][1]
        numbers = [number for call in calls if (number := refused_calls()[call][column]) is not None]
        passes = [line for number in numbers for line in seccomp._when(number, [seccomp._return(seccomp._ALLOW)])]
        lines = program(machine, *rest)
        return [*lines[:_PROLOGUE], *passes, *lines[_PROLOGUE:]]

    return allowing


def _wider(restrict: Callable[..., None], read_too: tuple[str, ...], write_too: tuple[str, ...]) -> Callable[..., None]:
    def wider(writable: Sequence[str], readable_too: Sequence[str] = (), *rest: Any) -> None:
        restrict([*writable, *write_too], [*readable_too, *read_too], *rest)

    return wider
