# SPDX-License-Identifier: Apache-2.0
"""The conversation of a CUDA clock with a runner, on the CPU: real requests, memory and comparison, pretended time."""

import itertools
import json
import random
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch.autograd import DeviceType

from tests.env import programs
from tests.env.pretend.pretend_gpu import PretendGpu
from tests.env.pretend.simulated_gpu import Clock, SimulatedGpu
from tests.tiers import thinned
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.clocks.cuda import rounds, timed_calls
from verl_kernel.env.clocks.cuda.clock import Baseline, CudaClock
from verl_kernel.env.clocks.cuda.rounds import Round, Samples
from verl_kernel.env.clocks.cuda.timed_calls import TimedCalls, summed
from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.devices.cuda.device import memory_shares
from verl_kernel.env.devices.cuda.stopwatch import Stopwatch
from verl_kernel.env.ipc.shared_memory import POISON, SharedMemory, TensorSpec, flatten, place
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task
from verl_kernel.errors import TaskError


class World(Clock):
    """Pretended time in milliseconds, and what each thing takes: a forward on the device and on the host, a request."""

    def __init__(self, kernel=1.0, host=0.0, hidden=0.0, null=0.2, null_lie=lambda: 0.0, noise=lambda: 0.0, beside=0.0):
        super().__init__()
        self.kernel, self.host, self.hidden, self.null, self.null_lie = kernel, host, hidden, null, null_lie
        self.noise, self.beside, self.order = noise, beside, []
        self.gpus = {"kernel": SimulatedGpu(self), "reference": SimulatedGpu(self)}

    def forward(self, side, ms, model):
        """A program whose kernel takes so long on this side's view of the device."""

        def run(*args):
            self.order.append(side)
            self.gpus[side].done.append("forward")
            self.now += self.host
            self.gpus[side].launch(ms() + self.noise())
            self.gpus[side].launch(self.beside * (side == "kernel"), stream="side")
            return model(*args)

        return run


class Refused(Exception):
    """The evaluation ends."""


class PretendSession:
    """An evaluation whose runner is in this process."""

    secret = b"secret"
    source = "kernel.py"

    def __init__(self, world, reference, model):
        self.world, self.reference, self.model, self.demand = world, reference, model, reference.demand
        self.memory = SharedMemory.create(reference.input_bytes + reference.output_bytes)
        self.timed = TimedCalls(PretendGpu(), self.memory, self.put, Stopwatch(world.gpus["kernel"]))
        self.compared = self.trials = 0
        self.numbers, self.requests = set(), []

    def put(self, output, inputs, specs):
        tree, tensors = None, []
        with suppress(TypeError):
            tree = flatten(output, tensors)
        for tensor, spec in zip(tensors, specs, strict=False):
            place = self.memory.view(TensorSpec.from_json(spec))
            if tensor.dtype is place.dtype:
                place.copy_(tensor)
        return {"output": tree, "tensors": []}

    def draw(self, number):
        self.trials += 1
        self.numbers.add(number)
        return self.reference.trial(self.secret, number, "drawn")

    def offer(self, trial):
        inputs, start = place(trial.inputs.tensors)
        outputs, end = place(trial.expected.tensors, start)
        self.memory.region(0, end).fill_(POISON)
        self.memory.write(trial.inputs.tensors, inputs)
        specs = {"specs": [spec.to_json() for spec in inputs], "outputs": [spec.to_json() for spec in outputs]}
        return {"inputs": trial.inputs.tree, **specs}

    def ask(self, request, timeout_s):
        self.requests.append(request["time"])
        reply = self.timed.answer(json.loads(json.dumps(request))["time"], self.model)
        self.world.now += self.world.null + self.world.null_lie() * (request["time"]["step"] == "null")
        self.world.now += self.world.hidden * (request["time"]["step"] == "call")
        return json.loads(json.dumps(reply))

    def accept(self, trial, reply, values):
        if reply["output"] != trial.expected.tree:
            raise Refused("structure")
        if values:
            self.compared += 1
            places, _ = place(trial.expected.tensors, place(trial.inputs.tensors)[1])
            for spec, expected in zip(places, trial.expected.tensors, strict=True):
                if not compare(expected, self.memory.view(spec)).ok:
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
    def run(world, model=None, peak=None, reference_ms=3.0, kernels=(), slowed=lambda: None, **options):
        monkeypatch.setattr(rounds, "time", world)
        monkeypatch.setattr(timed_calls, "device_kernels", lambda: nullcontext(dict(kernels)))
        alone = []

        @contextmanager
        def lock():
            alone.append(True)
            yield
            alone.append(False)

        session = PretendSession(world, reference, world.forward("kernel", lambda: world.kernel, model or right))
        watch = Stopwatch(world.gpus["reference"])
        gym, state = GymOptions(device="cpu", **options), lambda: {"sm_mhz": 1980}
        clock = CudaClock(gym, watch, alone=lock, state=state, peak=peak, slowed=slowed)
        timed = world.forward("reference", lambda: reference_ms, right)
        monkeypatch.setattr(clock, "_baseline", lambda session: Baseline({"eager": timed}))
        result = clock.measure(session)
        assert alone == [True, False]
        return result, session

    right = reference.model
    return run


@pytest.fixture
def measure_compiled(monkeypatch, reference):
    """Measure twice with what `torch.compile` makes of the reference's model, in a world where it takes `eager_ms`."""
    monkeypatch.setattr(timed_calls, "device_kernels", lambda: nullcontext({}))
    right = reference.model

    def measure(compile_model, world=None, eager_ms=1.0, mode="compile", alone=nullcontext, shared=None, **options):
        world = world or World()
        monkeypatch.setattr(reference, "model", world.forward("reference", lambda: eager_ms, right))
        monkeypatch.setattr(torch, "compile", compile_model)
        watch = Stopwatch(world.gpus["reference"])
        more = {} if shared is None else {"shared": shared}
        gym = GymOptions(device="cpu", reference_mode=mode, **options)
        clock = CudaClock(gym, watch, alone=alone, state=dict, peak=None, **more)
        return [clock.measure(PretendSession(world, reference, right)) for _ in range(2)]

    return measure


def test_a_reference_is_compiled_before_the_lock(measure_compiled):
    held, seen = [], []

    @contextmanager
    def holding(name):
        held.append(name)
        yield
        held.remove(name)

    def compiled(model):
        seen.append(("compile", *held))
        return lambda *args: seen.append(("call", *held)) or model(*args)

    measure_compiled(compiled, alone=lambda: holding("alone"), shared=lambda: holding("shared"))
    assert seen[:2] == [("compile",), ("call", "shared")]
    assert set(seen[2:]) == {("call", "alone")}


@pytest.mark.parametrize("mode", thinned(["tf32", "ieee"]))
def test_every_reference_call_has_the_mode_of_the_options(measure_compiled, mode):
    """What is expected is computed between these calls, exactly."""
    seen, matmul = [], torch.backends.cuda.matmul
    before = matmul.allow_tf32
    measure_compiled(lambda model: lambda *args: seen.append(matmul.allow_tf32) or model(*args), float32=mode)
    assert len(seen) > 20
    assert set(seen) == {mode == "tf32"}
    assert matmul.allow_tf32 is before


@pytest.fixture
def measure_mode(measure_compiled, reference):
    """Measure a reference in a mode, given the milliseconds of it eager and compiled; None: it cannot be compiled."""
    right = reference.model

    def measure(mode, eager_ms, compiled_ms):
        world, refused = World(), Mock(side_effect=RuntimeError("no such\nop"))
        compiled = refused if compiled_ms is None else world.forward("reference", lambda: compiled_ms, right)
        first, second = measure_compiled(lambda model: compiled, world, eager_ms, mode)
        assert first.reference_mode == second.reference_mode
        return second

    return measure


@pytest.mark.parametrize(("mode", "eager_ms", "compiled_ms", "chosen"), [
    ("eager", 3.0, 2.0, "eager"), ("compile", 2.0, 3.0, "compile"), ("best", 3.0, 2.0, "compile"),
    ("best", 2.0, 3.0, "eager"), ("best", 2.0, None, "eager"),
])  # fmt: skip
def test_the_mode_of_the_reference(measure_mode, mode, eager_ms, compiled_ms, chosen):
    measured = measure_mode(mode, eager_ms, compiled_ms)
    assert measured.reference_mode == chosen
    assert measured.reference_ms.median == pytest.approx({"eager": eager_ms, "compile": compiled_ms}[chosen])
    refused = None if compiled_ms else "RuntimeError: no such op"
    assert measured.facts.get("reference_not_compiled") == refused


def test_what_cannot_be_compiled_is_refused_in_a_sentence(measure_mode):
    with pytest.raises(TaskError, match="cannot be timed through torch.compile: RuntimeError: no such op; set"):
        measure_mode("compile", 2.0, None)


def calls(session, protocol="device"):
    return [one for one in session.requests if one["step"] == "call" and one["protocol"] == protocol]


def test_a_quiet_device_needs_ten_rounds(measure):
    result, session = measure(World())
    assert result.kernel_ms.n == result.reference_ms.n == 10
    assert result.kernel_ms.median == pytest.approx(1.0)
    assert result.reference_ms.median == pytest.approx(3.0)
    assert result.speedup == pytest.approx(3.0)
    assert result.speedup_low == pytest.approx(3.0)
    assert result.refusal is None
    assert result.facts["settled"]
    assert result.facts["clocks"]["after"] == {"sm_mhz": 1980}
    assert result.facts["forwards"] == 2  # 1 ms of them, were the candidate four times as fast
    assert session.compared == 2 * 2 * 10  # small outputs: every one
    assert len(session.numbers) == session.trials  # no inputs twice


@pytest.mark.parametrize("timing", ["device", "latency"])
def test_both_times_are_there_and_the_option_says_which_counts(measure, timing):
    result, _ = measure(World(kernel=0.1, host=0.15), reference_ms=1.0, timing=timing)  # which a queued flush hides
    assert {name: pytest.approx(one.speedup) for name, one in result.times.items()} == {
        "device": 10.0, "latency": 1.15 / 0.25,
    }  # fmt: skip
    assert result.times["latency"].speedup_low == pytest.approx(1.15 / 0.25)
    assert result.facts["timing"] == timing
    chosen = result.times[timing]
    assert (result.speedup, result.speedup_low) == (chosen.speedup, chosen.speedup_low)
    assert result.kernel_ms == chosen.kernel_ms


def test_both_sides_are_prepared_alike(measure):
    world = World()
    measure(world)

    def before_forwards(done):
        places = [place for place, what in enumerate(done) if what == "forward"]
        return {tuple(done[max(0, place - 7) : place]) for place in places if "stall" in done[place - 7 : place]}

    ours, theirs = (before_forwards(world.gpus[side].done) for side in ("kernel", "reference"))
    assert ours == theirs == {("wait", "unpin", "stall", "event", "flush", "event", "hold")}


def test_a_program_beside_itself_has_no_speedup(measure):
    noise = partial(random.Random(1).lognormvariate, -4, 1)
    result, _ = measure(World(kernel=3.0, host=0.2, noise=noise))
    assert all(abs(one.speedup - 1) <= 0.02 and one.speedup_low == 1.0 for one in result.times.values())


def test_sides_take_turns_in_both_orders(measure):
    world = World(kernel=20.0)
    measure(world, reference_ms=20.0)
    turns = (["kernel", "reference"] * 2 + ["reference", "kernel"] * 2) * 2
    assert world.order[2 * 3 :][: len(turns)] == turns  # after the warm-up; a round is of two protocols


@pytest.mark.parametrize(("kernel", "reference_ms", "forwards"), [(0.01, 0.05, 16), (8.0, 8.0, 1), (20.0, 0.05, 2)])
def test_short_kernels_get_several_forwards_in_a_request(measure, kernel, reference_ms, forwards):
    result, session = measure(World(kernel=kernel), reference_ms=reference_ms)
    assert result.facts["forwards"] == forwards
    assert {one["count"] for one in calls(session)[3:]} == {forwards}
    assert result.kernel_ms.median == pytest.approx(kernel)
    assert result.speedup == pytest.approx(reference_ms / kernel)
    assert len(session.numbers) == session.trials  # each forward on inputs of its own


def test_a_slow_first_call_does_not_set_the_forward_count(measure):
    world, quick = World(kernel=400.0), itertools.count()

    def noise():
        if next(quick) == 2 * (3 + 2 * 4):  # after some rounds of single forwards
            world.kernel = 0.01
        return 0.0

    world.noise = noise
    result, _ = measure(world, reference_ms=0.05)
    assert result.facts["forwards"] == 16
    assert result.kernel_ms.n == 10
    assert result.kernel_ms.mean == pytest.approx(0.01)


def test_much_data_is_not_held_for_many_forwards(measure, monkeypatch):
    monkeypatch.setattr(memory_shares, "TIMED_BYTES", 3 * 3 * 8 * 64 * 4)
    assert measure(World(kernel=0.01), reference_ms=0.05)[0].facts["forwards"] in (2, 3)


def test_common_host_overhead_is_charged_to_nobody(measure):
    """Caches of the processor that a forward has used, 0.03 ms of it: sixteen times in a request."""
    world = World(kernel=0.01)
    for gpu in world.gpus.values():
        wait = gpu.wait

        def slower(gpu=gpu, wait=wait):
            wait()
            world.now += 0.03 * (gpu.done[-5:] == ["forward", "event", "wait", "event", "wait"])

        gpu.wait = slower
    result, _ = measure(world, reference_ms=0.05)
    assert result.facts["forwards"] == 16
    assert result.kernel_ms.median == pytest.approx(0.01)
    assert result.refusal is None


@pytest.mark.parametrize(("most", "charged"), [(1, 0.01), (16, 0.01 + 0.009 - 0.05 / 16)])
def test_the_cross_check_resolves_hidden_work(measure, monkeypatch, most, charged):
    """Work that ends so soon after the stop event that it does not count as late; null calls differ by 0.05 ms."""
    monkeypatch.setattr(CudaClock, "most_forwards", most)
    lies = itertools.cycle([0.0, 0.05])
    world = World(kernel=0.01, null_lie=lambda: next(lies), beside=0.019)
    result, _ = measure(world, reference_ms=0.05)
    assert result.kernel_ms.median == pytest.approx(charged, abs=0.0005)


def test_the_published_protocol_warms_up_and_flushes_nothing(measure):
    result, session = measure(World(kernel=0.1), reference_ms=0.2, timing="kernelgym")
    assert set(result.times) == {"device", "latency", "kernelgym"}
    assert result.facts["timing"] == "kernelgym"
    requests = calls(session, "kernelgym")
    assert [one["count"] for one in requests] == [3, 16] * (len(requests) // 2)
    assert sum(one["count"] for one in requests if one["count"] == 16) >= 100
    assert result.speedup == pytest.approx(2.0)
    assert len(session.numbers) == session.trials


def test_warm_times_may_lie_below_the_roofline_of_device_memory(measure):
    result, _ = measure(World(kernel=0.01), reference_ms=0.2, peak=1e-6, timing="kernelgym")
    assert result.refusal[0] == "impossible_time"  # of the cold times
    one = rounds.TimedCall(0.1, 0.1)
    assert Samples(1, [Round(one, one, 0.0, 0.0)] * 9).refusal(0.0) is None


def test_a_noisy_device_gets_more_rounds_up_to_a_hundred(measure):
    some, _ = measure(World(noise=partial(random.Random(2).expovariate, 60)))
    assert 10 < some.kernel_ms.n < 100
    assert some.facts["settled"]
    assert some.times["latency"].kernel_ms.n == 10  # nobody waits for the time that does not count
    few, _ = measure(World(noise=partial(random.Random(2).expovariate, 60)), timing_width=0.1)
    assert (few.kernel_ms.n, few.facts["settled"]) == (10, True)
    assert few.speedup_low < few.speedup
    most, _ = measure(World(noise=random.Random(2).random))
    slow, _ = measure(World(kernel=500.0, noise=partial(random.Random(3).uniform, 0, 50)), run_timeout_s=1.0)
    assert (most.kernel_ms.n, most.facts["settled"]) == (100, False)
    assert (slow.kernel_ms.n, slow.facts["settled"]) == (10, False)  # beyond the budget


def test_rounds_of_a_slowed_device_are_done_again_and_counted(measure):
    world, asked = World(), []
    heat = iter([[], ["hw_thermal_slowdown"], [], ["hw_slowdown"], *[[]] * 100])

    def slowed():
        asked.append(next(heat))
        world.kernel = 50.0 if len(asked) in (1, 3) else 1.0  # the round after this question
        return asked[-1]

    result, _ = measure(world, slowed=slowed)
    assert result.facts["throttled"] == 2
    assert len(asked) == 12
    assert result.kernel_ms.n == 10
    assert result.kernel_ms.mean == pytest.approx(1.0)
    slow, _ = measure(World(), slowed=lambda: ["sw_thermal_slowdown"])
    assert slow.facts["throttled"] == 20
    assert slow.kernel_ms.n == 10
    assert measure(World())[0].facts["throttled"] is None  # nobody knows


def test_clocks_are_read_under_load(measure, monkeypatch):
    busy, under_load = [], Stopwatch.under_load

    def watched(self, read):
        return under_load(self, lambda: busy.append(self._gpu.free["default"] > self._gpu.clock.now) or read())

    monkeypatch.setattr(Stopwatch, "under_load", watched)
    result, _ = measure(World())
    assert busy == [True]
    assert result.facts["clocks"]["before"] == {"sm_mhz": 1980}


def test_work_the_events_do_not_see_is_charged_and_flagged(measure):
    result, _ = measure(World(kernel=1.0, hidden=18.0))  # of two forwards
    assert result.kernel_ms.median == pytest.approx(10.0, abs=0.3)
    assert result.refusal[0] == "timing_mismatch"
    slowed, _ = measure(World(kernel=1.0, hidden=18.0, null_lie=lambda: 50.0))  # null calls hide little
    assert slowed.kernel_ms.median > 8.9
    assert slowed.refusal is not None


@pytest.mark.parametrize(("share", "refusal"), [(1.01, None), (0.99, "impossible_time")])
def test_a_time_below_the_floor_is_impossible(measure, share, refusal):
    floor = (0.25 * (2 * 8 * 64 * 4 + 64 * 4) + 8 * 64 * 4) / 1e6  # at 1 GB/s, in milliseconds
    result, _ = measure(World(kernel=share * floor), peak=1.0)
    assert result.facts["floor_ms"] == pytest.approx(floor)
    assert (result.refusal and result.refusal[0]) == refusal


def test_the_roofline_counts_reads_and_changes_no_verdict(measure):
    roofline = ((2 * 8 * 64 + 64) * 4 + 8 * 64 * 4) / 1e6  # at 1 GB/s, in milliseconds
    fast, _ = measure(World(kernel=0.9 * roofline), peak=1.0)
    assert fast.roofline_ms == pytest.approx(roofline)
    assert fast.refusal is None
    assert measure(World(kernel=0.9 * roofline), peak=1.0, timing="kernelgym")[0].roofline_ms is None
    assert measure(World())[0].roofline_ms is None


@pytest.mark.parametrize(("is_wrong", "reference_ms"), [
    (lambda calls: calls >= 9, 3.0),  # right until it believes to be timed
    (lambda calls: calls > 20 and calls % 4 == 0, 0.05),  # one forward of a request in four
])  # fmt: skip
def test_timed_outputs_are_verified(measure, reference, is_wrong, reference_ms):
    calls = itertools.count(1)
    with pytest.raises(Refused, match="values"):
        measure(
            World(), lambda x, y: torch.zeros_like(x) if is_wrong(next(calls)) else reference.model(x, y),
            reference_ms=reference_ms,
        )  # fmt: skip


def test_an_output_of_another_form_is_not_copied(measure, reference):
    with pytest.raises(Refused, match="values"):
        measure(World(), lambda x, y: reference.model(x, y).double())
    with pytest.raises(Refused, match="structure"):
        measure(World(), lambda x, y: object())


def test_a_secret_tenth_of_large_outputs_is_compared(measure, monkeypatch):
    monkeypatch.setattr(rounds, "_COMPARED_BYTES", 0)
    _, session = measure(World(noise=random.Random(4).random))
    assert 3 <= session.compared <= 25
    shown = {one["number"] for one in session.requests if one["step"] == "output"}
    assert shown == {0, 1}  # of two forwards, which one is secret
    assert measure(World())[1].compared >= 1


def test_a_forged_time_is_refused(measure, monkeypatch):
    world, many = World(), Stopwatch.many

    def forged(self, protocol, forwards):
        kept, mean = many(self, protocol, forwards)
        return kept, float("nan") if self._gpu is world.gpus["kernel"] else mean

    monkeypatch.setattr(Stopwatch, "many", forged)
    with pytest.raises(Refused, match="forged"):
        measure(world)


def test_the_profile_counts_device_kernels_and_names_the_ops(measure):
    unknown, _ = measure(World())
    assert unknown.profile is None
    assert unknown.facts["profiler_saw_nothing"] is True
    result, _ = measure(World(), kernels={"elementwise": [3, 0.5]})
    assert "profiler_saw_nothing" not in result.facts
    assert result.profile.time_coverage == 0.0
    assert result.profile.num_total_kernels == 3
    assert result.profile.fallback_ops == {"aten::mul.Tensor": 2, "aten::add.Tensor": 1, "aten::relu": 1}


def test_device_kernels_leave_out_host_events_and_marks():
    def event(name, us, kind=DeviceType.CUDA, annotation=False):
        span = SimpleNamespace(elapsed_us=lambda: us)
        return SimpleNamespace(name=name, device_type=kind, is_user_annotation=annotation, time_range=span)

    events = [
        event("fused", 10.0), event("fused", 30.0), event("Memcpy DtoD (Device -> Device)", 5.0),
        event("cudaLaunchKernel", 9.0, DeviceType.CPU), event("range", 99.0, annotation=True),
        event("Context Sync", 7.0),
    ]  # fmt: skip
    assert summed(events) == {"fused": [2, 0.04], "Memcpy DtoD (Device -> Device)": [1, 0.005]}
