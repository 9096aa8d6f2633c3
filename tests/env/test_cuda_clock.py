# SPDX-License-Identifier: Apache-2.0
"""The conversation of a CUDA clock with a runner, on the CPU: real requests, arena and comparison, pretended time."""

import json
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from tests.env import programs
from verl_kernel.env.arena import POISON, Arena, TensorSpec, flatten, place
from verl_kernel.env.clock import cuda, timed_calls
from verl_kernel.env.clock.cuda import CudaClock
from verl_kernel.env.clock.timed_calls import TimedCalls, summed
from verl_kernel.env.compare import compare
from verl_kernel.env.devices import resolve_device
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference import Reference
from verl_kernel.env.task import Task


class World:
    """Pretended time in milliseconds, and what each thing takes."""

    def __init__(self, kernel=1.0, hidden=0.0, null=0.2, null_lie=0.0, noise=(0.0,)):
        self.now, self.kernel, self.hidden, self.null, self.null_lie = 0.0, kernel, hidden, null, null_lie
        self.noise = noise
        self.order = []

    def perf_counter(self):
        return self.now / 1e3

    monotonic = perf_counter


class PretendWatch:
    """A stopwatch of one side."""

    l2_bytes = 0

    def __init__(self, world, side, ms):
        self.world, self.side, self.ms, self.calls = world, side, ms, 0
        self.chilled = False

    def chill(self):
        self.chilled = True

    def time(self, call):
        assert self.chilled, "a call was timed on a warm cache"
        result = call()
        if result is None:  # a null call
            return result, 0.0
        self.chilled = False
        self.world.order.append(self.side)
        spent = self.ms() + self.world.noise[self.calls % len(self.world.noise)]
        self.calls += 1
        self.world.now += spent
        return result, spent

    def wait(self):
        pass

    def copy_ms(self, tensors):
        return 0.1


class Refused(Exception):
    """The evaluation ends."""


class PretendSession:
    """An evaluation whose runner is in this process."""

    secret = b"secret"
    source = "kernel.py"
    traces = ()

    def __init__(self, world, reference, model):
        self.world, self.reference, self.model = world, reference, model
        self.arena = Arena.create(reference.input_bytes + reference.output_bytes)
        watch = PretendWatch(world, "kernel", lambda: world.kernel)
        self.timed = TimedCalls(resolve_device("cpu"), self.arena, self.put, watch)
        self.compared = self.trials = 0
        self.numbers = set()

    def put(self, output, inputs, specs):
        tensors = []
        try:
            tree = flatten(output, tensors)
        except TypeError:
            tree = None
        for tensor, spec in zip(tensors, specs, strict=False):
            place = self.arena.view(TensorSpec.from_json(spec))
            if tensor.dtype is place.dtype:
                place.copy_(tensor)
        return {"output": tree}

    def trial(self, number):
        self.trials += 1
        self.numbers.add(number)
        return self.reference.trial(self.secret, number, varied=False)

    def offer(self, trial):
        inputs, start = place(trial.inputs.tensors)
        outputs, end = place(trial.expected.tensors, start)
        self.places = outputs
        self.arena.region(0, end).fill_(POISON)
        self.arena.write(trial.inputs.tensors, inputs)
        specs = {"specs": [spec.to_json() for spec in inputs], "outputs": [spec.to_json() for spec in outputs]}
        return {"inputs": trial.inputs.tree, **specs}

    def ask(self, request, timeout_s):
        reply = self.timed.answer(json.loads(json.dumps(request))["time"], self.model)
        self.world.now += self.world.null + self.world.null_lie * (request["time"]["step"] == "null")
        self.world.now += self.world.hidden * (request["time"]["step"] == "call")
        return json.loads(json.dumps(reply))

    def accept(self, trial, reply, values):
        if reply["output"] != trial.expected.tree:
            raise Refused("structure")
        if values:
            self.compared += 1
            for spec, expected in zip(self.places, trial.expected.tensors, strict=True):
                if not compare(expected, self.arena.view(spec)).ok:
                    raise Refused("values")

    def parse(self, read):
        try:
            return read()
        except (KeyError, TypeError, ValueError) as exc:
            raise Refused("forged") from exc


@pytest.fixture(scope="module")
def reference():
    return Reference(Task(programs.REFERENCE), resolve_device("cpu"))


@pytest.fixture
def measure(monkeypatch, reference):
    def run(world, model=None, peak=None, reference_ms=3.0, kernels=(), **options):
        monkeypatch.setattr(cuda, "time", world)
        monkeypatch.setattr(timed_calls, "device_kernels", lambda: nullcontext(dict(kernels)))
        alone = []

        @contextmanager
        def lock():
            alone.append(True)
            yield
            alone.append(False)

        session = PretendSession(world, reference, model or reference.model)
        watch = PretendWatch(world, "reference", lambda: reference_ms)
        clock = CudaClock(GymOptions(device="cpu", **options), watch, lock, lambda: {"sm_mhz": 1980}, peak)
        result = clock.measure(session)
        assert alone == [True, False]
        return result, session

    return run


def test_a_quiet_device_needs_ten_rounds(measure):
    world = World()
    result, session = measure(world)
    assert result.kernel_ms.n == result.reference_ms.n == 10
    assert result.kernel_ms.median == pytest.approx(1.0) and result.reference_ms.median == 3.0
    assert result.speedup == pytest.approx(3.0)
    assert result.refusal is None
    assert result.facts["settled"] and result.facts["clocks"]["after"] == {"sm_mhz": 1980}
    assert session.compared == 10  # small outputs: every one
    assert len(session.numbers) == session.trials  # no inputs twice


def test_sides_take_turns_in_both_orders(measure):
    world = World()
    measure(world)
    rounds = world.order[2 * 3 + 7 :]  # after the warm-up and the null calls
    assert rounds[:8] == ["kernel", "reference", "reference", "kernel"] * 2


def test_a_noisy_device_gets_more_rounds_up_to_a_hundred(measure):
    some, _ = measure(World(noise=(0.0, 0.002, 0.004, 0.006, 0.02, 0.1)))
    assert 10 < some.kernel_ms.n < 100 and some.facts["settled"]
    most, _ = measure(World(noise=(0.0, 0.5)))
    assert most.kernel_ms.n == 100 and not most.facts["settled"]


def test_a_slow_candidate_gets_ten_rounds_when_the_budget_is_spent(measure):
    result, _ = measure(World(kernel=500.0, noise=(0.0, 50.0)), run_timeout_s=1.0)
    assert result.kernel_ms.n == 10 and not result.facts["settled"]


def test_work_the_events_do_not_see_is_charged_and_flagged(measure):
    result, _ = measure(World(kernel=1.0, hidden=9.0))
    assert result.kernel_ms.median == pytest.approx(10.0, abs=0.3)
    assert result.refusal[0] == "timing_mismatch"


def test_slow_null_calls_hide_little(measure):
    result, _ = measure(World(kernel=1.0, hidden=9.0, null_lie=50.0))
    assert result.kernel_ms.median > 8.9
    assert result.refusal is not None


def test_a_time_below_the_roofline_is_impossible(measure, reference):
    moved = 0.25 * (2 * 8 * 64 * 4 + 64 * 4) + 8 * 64 * 4
    floor = moved / 1e6  # at 1 GB/s, in milliseconds
    slow, _ = measure(World(kernel=1.01 * floor), peak=1.0)
    assert slow.facts["floor_ms"] == pytest.approx(floor) and slow.refusal is None
    fast, _ = measure(World(kernel=0.99 * floor), peak=1.0)
    assert fast.refusal[0] == "impossible_time"


def test_timed_outputs_are_verified(measure, reference):
    calls = []

    def lazy(x, y):  # right until it believes to be timed
        calls.append(1)
        return reference.model(x, y) if len(calls) < 9 else torch.zeros_like(x)

    with pytest.raises(Refused, match="values"):
        measure(World(), lazy)


def test_of_large_outputs_a_secret_tenth_and_the_last_are_compared(measure, monkeypatch):
    monkeypatch.setattr(cuda, "_COMPARED_BYTES", 0)
    _, session = measure(World(noise=(0.0, 0.5)))
    assert 3 <= session.compared <= 25
    _, session = measure(World())
    assert session.compared >= 1


def test_an_output_of_another_form_is_not_copied(measure, reference):
    with pytest.raises(Refused, match="values"):
        measure(World(), lambda x, y: reference.model(x, y).double())
    with pytest.raises(Refused, match="structure"):
        measure(World(), lambda x, y: object())


def test_a_forged_time_is_refused(measure, monkeypatch):
    monkeypatch.setattr(PretendWatch, "time", lambda self, call: (call(), float("nan")))
    with pytest.raises((Refused, ValueError)):
        measure(World())


def test_without_device_kernels_the_profile_is_unknown(measure):
    result, _ = measure(World())
    assert result.profile is None and "time_coverage" not in result.fields()


def test_the_profile_counts_device_kernels_and_names_the_ops(measure):
    result, _ = measure(World(), kernels={"elementwise": [3, 0.5]})
    assert result.fields()["time_coverage"] == 0.0 and result.profile.num_total_kernels == 3
    assert result.profile.fallback_ops == {"aten::mul.Tensor": 2, "aten::add.Tensor": 1, "aten::relu": 1}


def test_device_kernels_leave_out_host_events_and_marks():
    from torch.autograd import DeviceType

    def event(name, us, kind=DeviceType.CUDA, annotation=False):
        span = SimpleNamespace(elapsed_us=lambda: us)
        return SimpleNamespace(name=name, device_type=kind, is_user_annotation=annotation, time_range=span)

    events = [
        event("fused", 10.0), event("fused", 30.0), event("Memcpy DtoD (Device -> Device)", 5.0),
        event("cudaLaunchKernel", 9.0, DeviceType.CPU), event("range", 99.0, annotation=True),
        event("Context Sync", 7.0),
    ]  # fmt: skip
    assert summed(events) == {"fused": [2, 0.04], "Memcpy DtoD (Device -> Device)": [1, 0.005]}
