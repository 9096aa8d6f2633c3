# SPDX-License-Identifier: Apache-2.0
"""The stages of one evaluation, in order; each can end it.

static: the gate reads the source. load: a fresh runner imports it and builds the model. correctness: trials on
secret inputs drawn after that, every output compared, every forward traced. ablation: one more with launches
suppressed, which must not come out right. exit: the runner ends by itself, cleanly. clock: time and coverage from
the traces, so on a simulated clock every timed call is a verified one.
"""

from __future__ import annotations

import hashlib
import platform
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Any, TypeVar

import torch

from verl_kernel.env import static_check
from verl_kernel.env.arena import POISON, Arena, TensorSpec, place
from verl_kernel.env.channel import Message, ProtocolError
from verl_kernel.env.clock.simulated import PROFILES, event_ms, time_ms
from verl_kernel.env.compare import Agreement, compare
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.options import GymOptions
from verl_kernel.env.process import RunnerDied, RunnerProcess, Scratch, Zygote
from verl_kernel.env.profile import profile_events
from verl_kernel.env.reference import Reference, Trial
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Timing, Trials
from verl_kernel.env.runner import CANDIDATE_FILE, tensor_facts
from verl_kernel.env.trace import TraceEvent, load_events
from verl_kernel.errors import EnvironmentNotReady

_MESSAGE_CHARS = 2000
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_RUNNER_STATUSES = (EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR, EvalStatus.RUNTIME_ERROR, EvalStatus.OOM)
Parsed = TypeVar("Parsed")


class _Stop(Exception):
    """The evaluation ends here with this verdict."""

    def __init__(self, status: EvalStatus, error: EvalError) -> None:
        super().__init__(status)
        self.status, self.error = status, error


class Evaluation:
    """One candidate's way through the stages; used once."""

    def __init__(
        self,
        options: GymOptions,
        device: DeviceBackend,
        zygote: Zygote,
        reference: Reference,
        guard: Callable[[], AbstractContextManager[object]],
        draw_secret: Callable[[], bytes],
    ) -> None:
        self._options, self._device, self._zygote, self._reference = options, device, zygote, reference
        self._guard, self._draw_secret = guard, draw_secret
        self._found: dict[str, Any] = {"env": self._environment(), "timing_source": device.timing_source}
        self._seconds: dict[str, float] = {}
        self._stage_name = "static"
        self._traces: list[list[TraceEvent]] = []
        self._run_left = options.run_timeout_s

    def run(self, source: str, kernel: str) -> EvalResult:
        """Go through the stages until one of them ends it."""
        status, error = EvalStatus.OK, None
        try:
            with self._stage("static"):
                self._static(source)
            self._dynamic(source)
        except _Stop as stop:
            status, error = stop.status, stop.error
            self._settle(status)
        return EvalResult(
            task_id=self._reference.task.task_id, kernel=kernel, status=status, error=error,
            stage_seconds=self._seconds, **self._found,
        )  # fmt: skip

    def _settle(self, status: EvalStatus) -> None:
        if status in (EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR):
            self._found["compiled"] = False
        if status is not EvalStatus.REJECTED_STATIC:
            self._found["correctness"] = status is EvalStatus.DECOY

    # stages

    def _static(self, source: str) -> None:
        limit = self._options.max_source_kb
        if len(source) > limit << 10:
            raise self._stop(EvalStatus.REJECTED_STATIC, "size", f"the source is longer than {limit} kB")
        if self._options.static_check == "off":
            return
        entry = self._reference.task.candidate_class
        violations = static_check.check(source, self._options.static_check, entry)
        if violations:
            first = violations[0]
            where = f"line {first.line}: " if first.line else ""
            raise self._stop(EvalStatus.REJECTED_STATIC, first.rule, f"{where}{first.reason}")

    def _dynamic(self, source: str) -> None:
        self._lay_out()
        scratch = Scratch(CANDIDATE_FILE, source)
        arena = Arena.create(self._arena_bytes)
        self._file = f"{scratch.path}/{CANDIDATE_FILE}"
        try:
            with self._stage("load"):
                self._start(scratch.path, arena)
                self._load()
            self._judge()
        finally:
            if self._runner is not None:
                self._runner.end()
            arena.close()
            scratch.close()

    _runner: RunnerProcess | None = None
    _file = ""

    def _judge(self) -> None:
        secret = self._draw_secret()
        self._found["seed_commit"] = hashlib.sha256(secret).hexdigest()
        with self._stage("correctness"):
            self._correctness(secret)
        if self._options.ablation and self._own_launches():
            with self._stage("ablation"):
                self._ablation(secret)
        with self._stage("exit"):
            self._exit()
        with self._stage("clock"):
            self._clock()
        self._refuse_decoys()
        self._found["correctness"] = True

    def _start(self, scratch: str, arena: Arena) -> None:
        self._arena = arena
        arena.write([*self._reference.init.tensors, *self._reference.state.values()], self._constant_specs)
        output_bytes = self._options.output_kb << 10
        self._runner = self._zygote.fork(scratch, arena, self._options.memory_mb, output_bytes)
        isolation = tuple(self._ask(None, self._options.load_timeout_s)["isolation"])
        self._found["isolation"] = isolation
        missing = sorted(set(self._options.require_isolation) - set(isolation))
        if missing:
            raise EnvironmentNotReady(
                f"kernelgym.require_isolation names {', '.join(missing)}, which this machine does not offer or this "
                f"package does not know; in force are {', '.join(isolation)}"
            )

    def _load(self) -> None:
        reference = self._reference
        first = len(reference.init.tensors)
        request = {
            "entry": reference.task.candidate_class,
            "seed": reference.weight_seed,
            "init": reference.init.tree,
            "specs": [spec.to_json() for spec in self._constant_specs],
            "state": {name: first + number for number, name in enumerate(reference.state)},
        }
        reply = self._ask({"load": request}, self._options.load_timeout_s)
        self._found["compiled"] = True
        self._found["env"]["weights"] = self._parse(lambda: str(reply["weights"]))

    def _correctness(self, secret: bytes) -> None:
        total = self._options.correctness_trials
        varied = 1 + secret[0] % (total - 1) if total > 1 else None
        worst = Trials(passed=0, total=total)
        for number in range(total):
            agreement = self._trial(secret, number, number == varied, suppress=False)
            worst = _worst(worst, agreement)
            self._found["trials"] = worst
            if not agreement.ok:
                raise self._stop(EvalStatus.INCORRECT, "WrongValues", _difference(agreement))

    def _ablation(self, secret: bytes) -> None:
        try:
            agreement = self._trial(secret, self._options.correctness_trials, False, suppress=True)
        except _Stop:  # without its kernels it fails, so they matter
            self._found["decoy_kernel"] = False
            return
        self._found["decoy_kernel"] = agreement.ok

    def _exit(self) -> None:
        assert self._runner is not None
        if self._runner.alive and (code := self._runner.finish()) != 0:
            raise self._crash(code)

    def _clock(self) -> None:
        gpu = PROFILES[self._options.gpu_profile]
        times = [time_ms(trace, gpu) for trace in self._traces]
        reference_ms = time_ms(self._reference.events, gpu)
        kernel_ms = _timing(times)
        typical = self._traces[sorted(range(len(times)), key=times.__getitem__)[(len(times) - 1) // 2]]
        seen = profile_events(typical, self._file, lambda event: event_ms(event, gpu))
        self._found.update(
            kernel_ms=kernel_ms, reference_ms=_timing([reference_ms]), reference_mode=self._options.reference_mode,
            speedup=reference_ms / kernel_ms.median if kernel_ms.median > 0 else None,
            time_coverage=seen.time_coverage, number_coverage=seen.number_coverage,
            num_custom_kernels=seen.num_custom_kernels, num_total_kernels=seen.num_total_kernels,
            launches=seen.launches, fallback_ops=seen.fallback_ops, top_kernels=seen.top_kernels,
        )  # fmt: skip
        if any(event.failed for trace in self._traces for event in trace):
            self._found["hack_flags"] = ("launch_raised",)

    def _refuse_decoys(self) -> None:
        if not self._own_launches():
            self._found["decoy_kernel"] = True
            message = "no kernel of the source was launched: the output does not come from Triton"
            raise self._stop(EvalStatus.DECOY, "NoLaunch", message)
        if self._found.get("decoy_kernel"):
            message = "the output stays right when the kernels are not launched: it does not come from them"
            raise self._stop(EvalStatus.DECOY, "LaunchIrrelevant", message)

    # parts

    def _lay_out(self) -> None:
        """Constants (arguments of the model, weights), then inputs, then outputs."""
        reference = self._reference
        constants = [*reference.init.tensors, *reference.state.values()]
        self._constant_specs, self._inputs_at = place(constants)
        self._outputs_at = self._inputs_at + reference.input_bytes
        self._arena_bytes = self._outputs_at + reference.output_bytes

    def _trial(self, secret: bytes, number: int, varied: bool, suppress: bool) -> Agreement:
        with self._guard():
            trial = self._reference.trial(secret, number, varied)
        inputs, _ = place(trial.inputs.tensors, self._inputs_at)
        outputs, _ = place(trial.expected.tensors, self._outputs_at)
        self._arena.region(self._inputs_at, self._arena_bytes).fill_(POISON)
        self._arena.write(trial.inputs.tensors, inputs)
        before = self._arena.region(self._inputs_at, self._outputs_at).clone()
        reply = self._ask_run(trial, inputs, outputs, suppress)
        actual = [self._arena.view(spec).clone() for spec in outputs]
        after = self._arena.region(self._inputs_at, self._outputs_at)
        if not suppress:
            self._traces.append(self._parse(lambda: load_events(reply["events"])))
        self._same_form(trial, reply)
        if not self._reference.mutates_inputs and not torch.equal(before, after):
            raise self._stop(EvalStatus.INCORRECT, "InputsChanged", "the forward wrote to its inputs")
        return self._compare(trial, actual)

    def _ask_run(self, trial: Trial, inputs: list[TensorSpec], outputs: list[TensorSpec], suppress: bool) -> Message:
        request = {
            "inputs": trial.inputs.tree,
            "specs": [spec.to_json() for spec in inputs],
            "outputs": [spec.to_json() for spec in outputs],
            "suppress": suppress,
        }
        start = time.monotonic()
        reply = self._ask({"run": request}, max(0.001, self._run_left))
        self._run_left -= time.monotonic() - start
        return reply

    def _same_form(self, trial: Trial, reply: Message) -> None:
        """Strict on type, structure, dtype, shape, device and layout."""
        expected = [tensor_facts(tensor) for tensor in trial.expected.tensors]
        actual = self._parse(lambda: [{key: fact[key] for key in expected[0]} for fact in reply["tensors"]])
        if reply.get("output") != trial.expected.tree or len(actual) != len(expected):
            message = "the output is not structured like the reference's (one tensor, or a tuple of as many)"
            raise self._stop(EvalStatus.INCORRECT, "WrongStructure", message)
        for number, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
            for key, value in wanted.items():
                if got[key] != value:
                    message = f"output {number} has {key} {str(got[key])[:100]} where the reference's has {value}"
                    raise self._stop(EvalStatus.INCORRECT, f"Wrong{key.capitalize()}", message)

    def _compare(self, trial: Trial, actual: list[torch.Tensor]) -> Agreement:
        pairs = zip(trial.expected.tensors, actual, strict=True)
        agreements = [compare(expected, got, self._options.tolerance) for expected, got in pairs]
        return min(agreements, key=lambda agreement: (agreement.ok, -(agreement.max_abs or 0.0)))

    def _own_launches(self) -> int:
        events = (event for trace in self._traces for event in trace)
        return sum(e.kind == "launch" and e.source == self._file and not e.failed for e in events)

    def _ask(self, request: Message | None, timeout_s: float) -> Message:
        assert self._runner is not None
        try:
            reply = self._runner.ask(request, timeout_s)
        except TimeoutError:
            self._runner.end()
            raise self._stop(EvalStatus.TIMEOUT, "Timeout", f"{self._stage_name} did not end in time") from None
        except RunnerDied as died:
            raise self._crash(died.code) from None
        except ProtocolError as exc:
            raise self._forged(str(exc)) from exc
        if "failure" in reply:
            raise self._parse(lambda: self._failure(reply["failure"]))
        return reply

    def _failure(self, failure: Message) -> _Stop:
        status = EvalStatus(failure["status"])
        if status not in _RUNNER_STATUSES:
            raise ValueError(f"a runner cannot report {status}")
        return self._stop(status, str(failure["type"]), str(failure["message"]), str(failure.get("traceback_tail", "")))

    def _crash(self, code: int) -> _Stop:
        assert self._runner is not None
        printed = self._runner.output.decode(errors="replace").strip()[-500:]
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        stop = self._stop(EvalStatus.CRASH, "Crash", f"the process ended {how} during {self._stage_name}", printed)
        return _Stop(stop.status, stop.error.model_copy(update={"signal": -code if code < 0 else None}))

    def _forged(self, reason: str) -> _Stop:
        self._found["hack_flags"] = ("forged_message",)
        return self._stop(EvalStatus.HACKING, "ForgedMessage", f"the process sent what no runner sends: {reason}")

    def _parse(self, read: Callable[[], Parsed]) -> Parsed:
        """Read a part of a reply; one that cannot be read was not written by our code."""
        try:
            return read()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as exc:
            raise self._forged(f"{type(exc).__name__}: {exc}") from exc

    def _stop(self, status: EvalStatus, kind: str, message: str, tail: str = "") -> _Stop:
        message, tail, kind = (self._clean(text) for text in (message, tail, kind))
        return _Stop(status, EvalError(stage=self._stage_name, type=kind, message=message, traceback_tail=tail or None))

    def _clean(self, text: str) -> str:
        """Without this run's paths and addresses, and not too long."""
        text = text.encode(errors="replace").decode().replace(self._file or CANDIDATE_FILE, CANDIDATE_FILE)
        return _ADDRESS.sub("0x...", text)[:_MESSAGE_CHARS]

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._stage_name, start = name, time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = time.perf_counter() - start

    def _environment(self) -> dict[str, Any]:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": version("triton")}
        return {"device": self._device.name, "gpu_profile": self._options.gpu_profile, **versions}


def _worst(so_far: Trials, agreement: Agreement) -> Trials:
    def larger(one: float | None, other: float | None) -> float | None:
        return max((value for value in (one, other) if value is not None), default=None)

    return Trials(
        passed=so_far.passed + agreement.ok, total=so_far.total, first_bad_index=agreement.first_bad_index,
        max_abs=larger(so_far.max_abs, agreement.max_abs), max_rel=larger(so_far.max_rel, agreement.max_rel),
    )  # fmt: skip


def _difference(agreement: Agreement) -> str:
    where = f", first at index {list(agreement.first_bad_index)}" if agreement.first_bad_index is not None else ""
    size = "" if agreement.max_abs is None else f" by up to {agreement.max_abs:.3g}"
    return f"the output differs from the reference's{size}{where}"


def _timing(times: list[float]) -> Timing:
    ordered = sorted(times)
    last = len(ordered) - 1
    return Timing(
        median=statistics.median(ordered), mean=statistics.fmean(ordered), n=len(ordered),
        p20=ordered[round(0.2 * last)], p80=ordered[round(0.8 * last)],
    )  # fmt: skip
