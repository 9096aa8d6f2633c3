# SPDX-License-Identifier: Apache-2.0
"""The checks of what watches a runner, and of the process that executes its kernels."""

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.mutation.shown import Shown, failing, noted, passing, value
from verl_kernel.env.devices import op_recorder
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.kernel import Buffer
from verl_kernel.env.execution import dataless_launches
from verl_kernel.env.execution.block_sampling import SamplesDisagree
from verl_kernel.env.execution.dataless_launches import Placed, SampledLaunches
from verl_kernel.env.execution.launch_arguments import _value, views
from verl_kernel.env.execution.launches import Launches, grid_of
from verl_kernel.env.execution.memory_checks import MemoryChecks
from verl_kernel.env.ops.cost import op_cost
from verl_kernel.env.runner.runner import Runner
from verl_kernel.env.tamper import tripwire
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.snapshot import Snapshot
from verl_kernel.env.tamper.tripwire import WIRE


def changed(owner: Any, name: str, to: object) -> Shown:
    """What a snapshot says of another value of an attribute."""

    def changes() -> list[str]:
        snapshot, before = Snapshot(), getattr(owner, name)
        setattr(owner, name, to)
        try:
            return list(snapshot.changes())
        finally:
            setattr(owner, name, before)

    return value(changes)


def hooked(hook: Callable[[], object], unhook: Callable[[], object]) -> Shown:
    """What a snapshot says of a hook."""

    def changes() -> list[str]:
        snapshot = Snapshot()
        with ExitStack() as hooks:
            hooks.callback(unhook)
            hook()
            return list(snapshot.changes())

    return value(changes)


def handled() -> Shown:
    """What a snapshot says of a handler of a signal."""
    before = signal.getsignal(signal.SIGUSR1)
    return hooked(lambda: signal.signal(signal.SIGUSR1, print), lambda: signal.signal(signal.SIGUSR1, before))


def passes(node: str) -> tuple[str, Shown]:
    """A line about a test of the executing process."""
    return "passes", passing(f"tests/env/execution/{node}")


def callback(*args: object) -> None:
    """What Python may be told to call."""


MODE = torch.overrides.TorchFunctionMode()


def launched(**launch: Any) -> Any:
    from verl_kernel.env.devices.cpu.launches import _launch  # needs triton

    return _launch(object(), grid=(1,), warmup=False, **launch)


def run_by(namespace: str, *types: type) -> None:
    func = SimpleNamespace(namespace=namespace, name=lambda: "mine::op", _schema=SimpleNamespace(name="mine::op"))
    op_recorder._watch(func, types)


def inspected() -> None:
    Runner._inspect(SimpleNamespace(_snapshot=SimpleNamespace(changes=lambda: ["time.sleep was replaced"])))


READY: Any = SimpleNamespace(signature={}, kernel=SimpleNamespace(launch=print, module=SimpleNamespace(may_wait=False)))
REQUEST = {"arguments": {}, "areas": [], "fresh": [], "views": [], "pointers": [], "is_tried": False, "grid": [1, 1, 1]}


def run(launch: Callable[..., Any] = print, **changes: Any) -> Shown:
    """What becomes of a launch of which the memory checks say so."""
    checks = SimpleNamespace(buffers=lambda buffers, fresh: buffers, refuses=True, launch=launch)
    arena = SimpleNamespace(point=lambda pointers: None)
    launches: Any = SimpleNamespace(_checks=checks, _arena=arena, _order=print, _random=None)
    return value(lambda: Launches._run(launches, READY, {**REQUEST, **changes}, "k", False))


def copied() -> object:
    """What becomes of a tried launch whose tensors do not fit twice."""
    arena = SimpleNamespace(address=failing(MemoryError()))
    return Launches._copied(SimpleNamespace(_arena=arena), {"areas": [[0, 1]]})


def watched() -> object:
    """What becomes of a launch in which races could not be looked for."""
    checks = MemoryChecks()
    checks.begin(True, True)
    return checks.launch(lambda buffers, watch: watch.note("races") or SimpleNamespace(sites=[], program=None), [], [])


def beyond_its_views() -> object:
    """What becomes of a launch that accesses more of a storage than it was given."""
    memory = np.zeros(8, np.uint8)
    whole = Buffer(int(memory.ctypes.data), 8)
    checks = MemoryChecks()
    checks.begin(True, True)

    def run(buffers: Sequence[Buffer], **more: Any) -> Any:
        if buffers[0].bytes < 8:
            raise Fault("out_of_bounds", "it lies outside", None, whole.address + 4)
        return SimpleNamespace(sites=[], program=None)

    return checks.launch(run, [whole], [Buffer(whole.address, 4)])


class Sparse:
    """Memory of which each look makes more room, and in which no tensor fits."""

    clearings = property(lambda self: time.monotonic())
    tensor_address = failing(MemoryError("too large"))
    restore = give_back = close = lambda self, *areas: None


def sampling(**more: Any) -> Any:
    """The executing process of sampled launches."""
    made = {"_sparse": Sparse(), "_draw": np.random.default_rng(0), "_tally": print, "_tried_works": {}}
    return SimpleNamespace(**{**made, "_address": lambda area: 0, "_placed": lambda request: Placed((), ()), **more})


DISAGREEING = failing(SamplesDisagree("bytes", 0.5))


def faulty() -> object:
    """What becomes of a fault in a sample."""
    kernel = SimpleNamespace(launch=failing(Fault("race", "they race")), module=READY.kernel.module)
    ready: Any = SimpleNamespace(kernel=kernel)
    return SampledLaunches._programs(sampling(), ready, (1, 1, 1), [], Placed((), ()), [0])


TABLE: dict[str, tuple[str, Shown]] = {
    "attributes-are-unchanged": ("time.sleep was replaced", changed(time, "sleep", print)),
    "code-is-unchanged": (
        "the code of op_cost was replaced", changed(op_cost, "__code__", (lambda f, a, k, r: None).__code__),
    ),
    "no-trace-function": (
        "a trace or profile function", hooked(lambda: sys.setprofile(callback), lambda: sys.setprofile(None)),
    ),
    "no-signal-handler": ("a handler of SIGUSR1 was set", handled()),
    "no-interval-timer": (
        "an interval timer",
        hooked(lambda: signal.setitimer(signal.ITIMER_PROF, 900), lambda: signal.setitimer(signal.ITIMER_PROF, 0)),
    ),
    "no-collector-callback": (
        "garbage collector", hooked(lambda: gc.callbacks.append(callback), lambda: gc.callbacks.remove(callback)),
    ),
    "no-torch-mode": ("a mode of torch", hooked(MODE.__enter__, lambda: MODE.__exit__(None, None, None))),
    "no-thread": ("a thread was started", changed(threading, "active_count", lambda: 2)),
    "few-elements-are-read": ("host_access", noted(lambda: WIRE.read(65, "items"))),
    "no-raw-memory": ("host_access", noted(lambda: tripwire._audit("ctypes.string_at", ()))),
    "no-escape-from-the-recorder": ("escaped_recorder", noted(lambda: tripwire._audit("gc.get_objects", ()))),
    "no-call-past-the-recorder": (
        "foreign_op", noted(lambda: tripwire._wired(lambda: None, "torch.library.impl", HackFlag.FOREIGN_OP)()),
    ),
    "launch-is-of-a-kernel": ("unapproved_launch", noted(launched)),
    "op-is-of-torch": ("foreign_op", noted(lambda: run_by("mine"))),
    "tensor-class-is-of-torch": ("foreign_op", noted(lambda: run_by("aten", torch.nn.Parameter))),
    "nothing-was-patched": ("patched", noted(inspected)),
    "arena-piece-has-numbers": passes("test_launches.py::test_a_piece_outside_of_the_arena_has_no_address[-1-4]"),
    "arena-piece-lies-inside": passes("test_launches.py::test_a_piece_outside_of_the_arena_has_no_address[0-1048577]"),
    "view-lies-in-its-storage": (
        "does not lie in its storage",
        value(lambda: views([[0, 16]], SimpleNamespace(address=lambda place, length: place), [Buffer(0, 8)])),
    ),
    "argument-has-a-known-kind": ("unknown kind", value(lambda: _value({"what": 1}, None))),
    "launch-is-known": passes("test_launches.py::test_clusters_are_said_to_be_unknown"),
    "launch-is-not-refused": passes("test_launches.py::test_what_the_compiler_refuses_is_told_with_its_line"),
    "launch-did-not-fail": passes("test_launches.py::test_a_failure_of_the_judge_stops_the_launch"),
    "grid-is-finite": ("programs takes too long", run(grid=[1 << 20, 1 << 10, 1])),
    "launch-has-no-fault": ("raised Stop: they race", run(failing(Fault("race", "they race")))),
    "watched-launch-has-no-fault": (
        "raised Stop: it reads", run(lambda run, buffers, views: (None, [Fault("unwritten", "it reads")])),
    ),
    "tuned-tensors-fit-twice": ("do not fit twice", value(copied)),
    "launch-is-readable": passes("test_launches.py::test_what_cannot_be_read_is_told_to_the_judge"),
    "grid-is-one-of-a-gpu": ("larger than a GPU takes", value(lambda: grid_of({"grid": [1, 1 << 16, 1]}))),
    "reports-are-bounded": passes("test_launches.py::test_reports_have_a_bound_that_is_the_candidates"),
    "grid-has-three-sizes": ("a grid has three sizes", value(lambda: grid_of({"grid": [1, 1, -1]}))),
    "access-lies-in-its-view": ("raised Fault: it lies outside", value(beyond_its_views)),
    "launch-could-be-watched": ("could not be watched for races", value(watched)),
    "sampled-tensor-lies-in-its-area": (
        "lies in its area", value(lambda: Placed((), (Buffer(0, 8),)).address([0, 99], 0)),
    ),
    "samples-agree": (
        "raised Stop: two samples",
        value(lambda: SampledLaunches._sampled(sampling(_programs=DISAGREEING), READY, REQUEST, "k")),
    ),
    "sampled-program-has-no-fault": ("raised Stop: they race", value(faulty)),
    "sampled-tensors-fit": ("more, or larger, tensors", value(lambda: SampledLaunches._placed(sampling(), REQUEST))),
    "sampled-address-fits": (
        "raised Stop: too large", value(lambda: SampledLaunches._address(sampling(), (0, 1, "float32"))),
    ),
    "area-has-numbers": ("an area has a place", value(lambda: dataless_launches._area(-1, 1, "float32"))),
    "counts-of-samples-agree": passes("test_block_sampling.py::test_samples_that_differ_are_no_count"),
    "sparse-piece-lies-inside": passes("test_sparse_memory.py::test_a_piece_outside_of_the_arena_has_no_address"),
    "sparse-tensors-fit": passes("test_sparse_memory.py::test_what_no_process_can_address_is_refused"),
}  # fmt: skip
