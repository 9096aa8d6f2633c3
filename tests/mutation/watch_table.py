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

from tests.mutation.shown import Shown, noted, passing, value
from verl_kernel.env.devices import op_recorder
from verl_kernel.env.execution import sampled
from verl_kernel.env.execution.launch_arguments import _value, views
from verl_kernel.env.execution.launches import Launches, grid_of
from verl_kernel.env.execution.memory_checks import MemoryChecks
from verl_kernel.env.execution.sampled import Placed, SampledLaunches
from verl_kernel.env.execution.sampling import Apart
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.kernel import Buffer
from verl_kernel.env.ops.cost import op_cost
from verl_kernel.env.runner.runner import Runner
from verl_kernel.env.tamper import tripwire
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.snapshot import Snapshot
from verl_kernel.env.tamper.tripwire import WIRE

EXECUTION = "tests/env/execution"


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


def callback(*args: object) -> None:
    """What Python may be told to call."""


MODE = torch.overrides.TorchFunctionMode()


def launched(**launch: Any) -> Any:
    """What the runner makes of a launch of no kernel."""
    from verl_kernel.env.devices.cpu.launches import _launch  # needs triton

    return _launch(object(), grid=(1,), warmup=False, **launch)


def run_by(namespace: str, *types: type) -> None:
    """What the recorder notes of an op."""
    func = SimpleNamespace(namespace=namespace, name=lambda: "mine::op", _schema=SimpleNamespace(name="mine::op"))
    op_recorder._watch(func, types)


def inspected() -> None:
    """What the runner notes of a change."""
    Runner._inspect(SimpleNamespace(_snapshot=SimpleNamespace(changes=lambda: ["time.sleep was replaced"])))


def failing(exc: Exception) -> Callable[..., Any]:
    """A function that raises."""

    def fail(*args: object, **named: object) -> None:
        raise exc

    return fail


READY: Any = SimpleNamespace(signature={}, kernel=SimpleNamespace(launch=print, module=SimpleNamespace(may_wait=False)))
REQUEST = {"arguments": {}, "areas": [], "fresh": [], "views": [], "pointers": [], "is_tried": False, "grid": [1, 1, 1]}


def run(launch: Callable[..., Any] = print, **changes: Any) -> Shown:
    """What becomes of a launch of which the memory checks say so."""
    checks = SimpleNamespace(buffers=lambda buffers, fresh: buffers, refuses=True, launch=launch)
    arena = SimpleNamespace(point=lambda pointers: None)
    launches: Any = SimpleNamespace(_checks=checks, _arena=arena, _drawn=print, _random=None)
    return value(lambda: Launches._run(launches, READY, {**REQUEST, **changes}, "k", False))


def copied() -> object:
    """What becomes of a tried launch whose tensors do not fit twice."""

    def address(*area: int) -> int:
        raise MemoryError

    return Launches._copied(SimpleNamespace(_arena=SimpleNamespace(address=address)), {"areas": [[0, 1]]})


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

    def unknown(self, area: object) -> int:
        """Where it lies."""
        raise MemoryError("too large")

    def restore(self, areas: object) -> None:
        """Nothing."""

    give_back = close = lambda self: None


def sampling(**more: Any) -> Any:
    """The executing process of sampled launches."""
    made = {"_sparse": Sparse(), "_draw": np.random.default_rng(0), "_told": print, "_tried": {}}
    return SimpleNamespace(**{**made, "_address": lambda area: 0, "_placed": lambda request: Placed((), ()), **more})


def apart() -> object:
    """What becomes of samples that do not agree."""
    launches = sampling(_programs=failing(Apart("bytes", 0.5)))
    return SampledLaunches._sampled(launches, READY, REQUEST, "k")


def faulty() -> object:
    """What becomes of a fault in a sample."""
    kernel = SimpleNamespace(launch=failing(Fault("race", "they race")), module=READY.kernel.module)
    ready: Any = SimpleNamespace(kernel=kernel)
    return SampledLaunches._programs(sampling(), ready, (1, 1, 1), [], Placed((), ()), [0])


TABLE: dict[str, tuple[str, Shown]] = {
    "tamper.snapshot:Snapshot.changes": ("time.sleep was replaced", changed(time, "sleep", print)),
    "tamper.snapshot:Snapshot.changes 2": (
        "the code of op_cost was replaced",
        changed(op_cost, "__code__", (lambda f, a, k, r: None).__code__),
    ),
    "tamper.snapshot:Snapshot._hooks": (
        "a trace or profile function",
        hooked(lambda: sys.setprofile(callback), lambda: sys.setprofile(None)),
    ),
    "tamper.snapshot:Snapshot._hooks 2": ("a handler of SIGUSR1 was set", handled()),
    "tamper.snapshot:Snapshot._hooks 3": (
        "an interval timer",
        hooked(lambda: signal.setitimer(signal.ITIMER_PROF, 900), lambda: signal.setitimer(signal.ITIMER_PROF, 0)),
    ),
    "tamper.snapshot:Snapshot._hooks 4": (
        "garbage collector",
        hooked(lambda: gc.callbacks.append(callback), lambda: gc.callbacks.remove(callback)),
    ),
    "tamper.snapshot:Snapshot._hooks 5": (
        "a mode of torch",
        hooked(MODE.__enter__, lambda: MODE.__exit__(None, None, None)),
    ),
    "tamper.snapshot:Snapshot._hooks 6": ("a thread was started", changed(threading, "active_count", lambda: 2)),
    "tamper.tripwire:Tripwire.read": ("host_access", noted(lambda: WIRE.read(65, "items"))),
    "tamper.tripwire:_audit": ("host_access", noted(lambda: tripwire._audit("ctypes.string_at", ()))),
    "tamper.tripwire:_audit 2": ("escaped_recorder", noted(lambda: tripwire._audit("gc.get_objects", ()))),
    "tamper.tripwire:_wired": (
        "foreign_op",
        noted(lambda: tripwire._wired(lambda: None, "torch.library.impl", HackFlag.FOREIGN_OP)()),
    ),
    "devices.cpu.launches:_launch": ("unapproved_launch", noted(launched)),
    "devices.op_recorder:_watch": ("foreign_op", noted(lambda: run_by("mine"))),
    "devices.op_recorder:_watch 2": ("foreign_op", noted(lambda: run_by("aten", torch.nn.Parameter))),
    "runner.runner:Runner._inspect": ("patched", noted(inspected)),
    "execution.launch_arguments:Arena.address": (
        "passes",
        passing(f"{EXECUTION}/test_launches.py::test_a_piece_outside_of_the_arena_has_no_address[-1-4]"),
    ),
    "execution.launch_arguments:Arena.address 2": (
        "passes",
        passing(f"{EXECUTION}/test_launches.py::test_a_piece_outside_of_the_arena_has_no_address[0-1048577]"),
    ),
    "execution.launch_arguments:views": (
        "does not lie in its storage",
        value(lambda: views([[0, 16]], SimpleNamespace(address=lambda place, length: place), [Buffer(0, 8)])),
    ),
    "execution.launch_arguments:_value": ("unknown kind", value(lambda: _value({"what": 1}, None))),
    "execution.launches:Launches._compiled": (
        "passes",
        passing(f"{EXECUTION}/test_launches.py::test_clusters_are_said_to_be_unknown"),
    ),
    "execution.launches:Launches._compiled 2": (
        "passes",
        passing(f"{EXECUTION}/test_launches.py::test_what_the_compiler_refuses_is_told_with_its_line"),
    ),
    "execution.launches:Launches._compiled 3": (
        "passes",
        passing(f"{EXECUTION}/test_launches.py::test_a_failure_of_the_judge_stops_the_launch"),
    ),
    "execution.launches:Launches._run": ("programs takes too long", run(grid=[1 << 20, 1 << 10, 1])),
    "execution.launches:Launches._run 2": ("raised Stop: they race", run(failing(Fault("race", "they race")))),
    "execution.launches:Launches._run 3": (
        "raised Stop: it reads",
        run(lambda run, buffers, views: (None, [Fault("unwritten", "it reads")])),
    ),
    "execution.launches:Launches._copied": ("do not fit twice", value(copied)),
    "execution.launches:readable": (
        "passes",
        passing(f"{EXECUTION}/test_launches.py::test_what_cannot_be_read_is_told_to_the_judge"),
    ),
    "execution.launches:grid_of": ("a grid has three sizes", value(lambda: grid_of({"grid": [1, 1, -1]}))),
    "execution.memory_checks:MemoryChecks.launch": ("raised Fault: it lies outside", value(beyond_its_views)),
    "execution.memory_checks:MemoryChecks.launch 2": ("could not be watched for races", value(watched)),
    "execution.sampled:Placed.address": (
        "lies in its area",
        value(lambda: Placed((), (Buffer(0, 8),)).address([0, 99], 0)),
    ),
    "execution.sampled:SampledLaunches._sampled": ("raised Stop: two samples", value(apart)),
    "execution.sampled:SampledLaunches._programs": ("raised Stop: they race", value(faulty)),
    "execution.sampled:SampledLaunches._placed": (
        "more, or larger, tensors",
        value(lambda: SampledLaunches._placed(sampling(), REQUEST)),
    ),
    "execution.sampled:SampledLaunches._address": (
        "raised Stop: too large",
        value(lambda: SampledLaunches._address(sampling(), (0, 1, "float32"))),
    ),
    "execution.sampled:_area": ("an area has a place", value(lambda: sampled._area(-1, 1, "float32"))),
    "execution.sampling:Sampler.count": (
        "passes",
        passing(f"{EXECUTION}/test_sampling.py::test_samples_that_differ_are_no_count"),
    ),
    "execution.sparse_memory:SparseMemory.known": (
        "passes",
        passing(f"{EXECUTION}/test_sparse_memory.py::test_a_piece_outside_of_the_arena_has_no_address"),
    ),
    "execution.sparse_memory:SparseMemory._mapped": (
        "passes",
        passing(f"{EXECUTION}/test_sparse_memory.py::test_what_no_process_can_address_is_refused"),
    ),
}
