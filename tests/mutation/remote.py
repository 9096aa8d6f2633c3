# SPDX-License-Identifier: Apache-2.0
"""Switches off what runners and executing processes do: their zygotes import this, by a `sitecustomize` of a test."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ENV = "verl_kernel.env."
_ZYGOTES = {f"{ENV}runner.zygote", f"{ENV}execution.zygote"}


def _in_order(draw: object, programs: int, may_wait: bool) -> Any:
    import numpy as np

    return np.arange(programs)


def _unwatched(self: Any, is_on: bool, refuses: bool) -> None:
    self._is_on, self.refuses, self.not_watched = False, refuses, []


OFF: dict[str, dict[str, Callable[..., Any]]] = {
    "the order of programs": {
        "execution.launches:random_order": _in_order,
        "execution.launches:reversed_order": lambda order, may_wait: order,
    },
    "memory checks": {"execution.memory_checks:MemoryChecks.begin": _unwatched},
    "poison where nothing was written": {"devices.poison:_fill": lambda tensor, number: None},
    "landlock": {"sandbox.landlock:restrict": lambda *paths: None},
    "seccomp": {"sandbox.seccomp:restrict": lambda profile: None},
    "bulk reads": {"tamper.tripwire:Tripwire.read_in_bulk": lambda self, tensor, how: None},
}  # fmt: skip
"""By check, what stands in the place of functions."""


@contextmanager
def patched(changes: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Where these functions are others."""
    with pytest.MonkeyPatch.context() as patch:
        for place, function in changes.items():
            module, _, name = place.partition(":")
            owner, _, attribute = name.rpartition(".")
            found = import_module(ENV + module)
            patch.setattr(getattr(found, owner) if owner else found, attribute, function)
        yield


def customized(folder: Path) -> str:
    """A folder for PYTHONPATH, in which a zygote finds that it is to ask `folder / "off"` what is switched off."""
    text = f"from tests.mutation.remote import install\n\ninstall({str(folder / 'off')!r})\n"
    (folder / "sitecustomize.py").write_text(text)
    (folder / "off").write_text("")
    return str(folder)


def install(path: str) -> None:
    """Let what a zygote forks ask the file first (once per process)."""
    if not _ZYGOTES & set(sys.orig_argv):
        return
    fork_loop = import_module(f"{ENV}ipc.fork_loop")
    serve = fork_loop.serve

    def asking(channel: Any, become: Callable[..., None], *more: Any) -> None:
        def forked(request: Any, fds: list[int]) -> None:
            with patched(_wanted(path)):
                become(request, fds)

        serve(channel, forked, *more)

    fork_loop.serve = asking


def _wanted(path: str) -> dict[str, Callable[..., Any]]:
    changes = OFF.get(Path(path).read_text(), {})
    is_runner = f"{ENV}runner.zygote" in sys.orig_argv
    found = {place: function for place, function in changes.items() if place.startswith("execution") is not is_runner}
    if found and is_runner:  # else it would find the change
        found["runner.runner:Snapshot.changes"] = lambda self: ()
    return found
