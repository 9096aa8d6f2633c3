# SPDX-License-Identifier: Apache-2.0
"""The stages of one evaluation, in order; each can end it.

static: the gate reads the source. load: a fresh runner imports it and builds the model. correctness: trials on
secret inputs drawn after that, every output compared, every forward traced; among them, at a secret place, the
ablation: one without what its kernels compute, which must not come out right. exit: the runner ends by itself, cleanly.
clock: time and coverage, on a simulated clock from the traces, so that every timed call is a verified one; a clock
that measures asks the runner, so it comes before the exit and its verdict after. From load to exit the judge holds a
lock on the device, shared with other judges, or exclusive while a clock measures; `wait` is the time it took to get it.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib.metadata import version
from typing import Any

import torch

from verl_kernel.env import static_check
from verl_kernel.env.clocks.base import Clock, Measurement
from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc.shared_memory import Arena
from verl_kernel.env.judge.ablation import Ablation
from verl_kernel.env.judge.hidden_work import Entry, hidden_work
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.judge.runner_client import Dialogue, Stop
from verl_kernel.env.judge.session import BenchSession
from verl_kernel.env.judge.trials import Bench, Layout, difference
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Trials
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.env.tamper.trace_checks import lazy_flags, moves_too_little, own_launches
from verl_kernel.errors import EnvironmentNotReady, InfraError

STAGES = ("wait", "static", "load", "correctness", "ablation", "exit", "clock")


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
        clock: Clock,
    ) -> None:
        self._options, self._device, self._zygote, self._reference = options, device, zygote, reference
        self._guard, self._draw_secret, self._clock = guard, draw_secret, clock
        self._found: dict[str, Any] = {"env": self._environment(), "timing_source": device.timing_source}
        self._seconds: dict[str, float] = {}
        self._bench: Bench | None = None
        self._scratch: Scratch

    def run(self, source: str, kernel: str) -> EvalResult:
        """Go through the stages until one of them ends it."""
        status, error = EvalStatus.OK, None
        try:
            with self._stage("static"):
                self._static(source)
            with self._device.shared():
                self._dynamic(source)
        except Stop as stop:
            status, error = stop.status, stop.error
            self._settle(stop)
        if waited_s := self._device.waited_s:
            self._seconds["wait"] = waited_s
        return EvalResult(
            task_id=self._reference.task.task_id, kernel=kernel, status=status, error=error,
            task_flags=tuple(self._reference.task_flags),
            stage_seconds={name: self._seconds[name] for name in STAGES if name in self._seconds}, **self._found,
        )  # fmt: skip

    def _settle(self, stop: Stop) -> None:
        if stop.status in (EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR):
            self._found["compiled"] = False
        if stop.status is not EvalStatus.REJECTED_STATIC:
            self._found["correctness"] = stop.status is EvalStatus.DECOY
        if stop.flags:
            self._found["hack_flags"] = stop.flags

    # stages

    def _static(self, source: str) -> None:
        limit = self._options.max_source_kb
        if len(source) > limit << 10:
            raise _refused("size", f"the source is longer than {limit} kB")
        if self._options.static_check == "off":
            return
        entry = self._reference.task.candidate_class
        violations = static_check.check(source, self._options.static_check, entry)
        if violations:
            first = violations[0]
            where = f"line {first.line}: " if first.line else ""
            raise _refused(first.rule, f"{where}{first.reason}")

    def _dynamic(self, source: str) -> None:
        layout = Layout(self._reference)
        with closing(Scratch(source)) as scratch, closing(Arena.create(layout.size)) as arena:
            self._scratch = scratch
            try:
                with self._stage("load"):
                    self._device.grant(self._options.memory_mb)
                    self._bench = bench = self._start(scratch.path, arena, layout)
                    self._load(bench)
                self._judge(bench)
            finally:
                if self._bench is not None:
                    self._bench.dialogue.runner.end()

    def _start(self, scratch: str, arena: Arena, layout: Layout) -> Bench:
        options = self._options
        arena.write(layout.constants, layout.specs)
        dialogue = Dialogue(self._fork(scratch, arena), scratch, options)
        is_sealed = self._device.timing_source == "simulated"
        rules, seconds = (options.tolerance, options.float32), options.run_timeout_s
        return Bench(self._reference, dialogue, arena, layout, self._guard, *rules, is_sealed, seconds)

    def _fork(self, scratch: str, arena: Arena) -> RunnerProcess:
        return self._zygote.fork(scratch, arena, self._options)

    def _begin_again(self, bench: Bench) -> None:
        """Load the candidate into another runner, for the trials that are left."""
        self._scratch.renew()
        bench.dialogue.runner = self._fork(bench.dialogue.scratch, bench.arena)
        bench.arena.write(bench.layout.constants, bench.layout.specs)
        self._load(bench)

    def _load(self, bench: Bench) -> None:
        reference, ask = self._reference, bench.dialogue.ask
        self._require(self._await_runner(bench))
        bench.dialogue.begun = True
        first = len(reference.init.tensors)
        request = {
            "entry": reference.task.candidate_class,
            "seed": reference.weight_seed,
            "init": reference.init.tree,
            "specs": [spec.to_json() for spec in bench.layout.specs],
            "state": {name: first + number for number, name in enumerate(reference.state)},
            "constants": reference.constants,
        }
        reply = ask({"load": request}, self._options.load_timeout_s)
        self._found["compiled"] = True
        self._found["env"]["weights"] = weights = bench.dialogue.parse(lambda: str(reply["weights"]))
        reference.use_weights(initial=weights == "seeded")

    def _await_runner(self, bench: Bench) -> tuple[str, ...]:
        """The runner's first words, from before there is a candidate: whatever goes wrong here is ours."""
        try:
            started = bench.dialogue.ask(None, self._options.load_timeout_s)
        except Stop as stop:
            raise InfraError(f"a runner did not start: {stop.error.message}") from None
        if "unfit" in started:
            raise InfraError(str(started["unfit"]))
        return tuple(started["isolation"])

    def _require(self, isolation: tuple[str, ...]) -> None:
        self._found["isolation"] = isolation
        missing = sorted(set(self._options.require_isolation) - set(isolation))
        if missing:
            raise EnvironmentNotReady(
                f"kernelgym.require_isolation names {', '.join(missing)}, which this machine does not offer or this "
                f"package does not know; in force are {', '.join(isolation)}"
            )

    def _judge(self, bench: Bench) -> None:
        secret = self._draw_secret()
        self._found["seed_commit"] = hashlib.sha256(secret).hexdigest()
        with self._stage("correctness", bench):
            self._correctness(bench, secret)
        with self._stage("clock", bench):
            measured = self._clock.measure(BenchSession(bench, secret))
            self._found["env"].update(self._device.seen())
        with self._stage("exit", bench):
            self._exit(bench)
        with self._stage("clock", bench):
            self._take(bench, measured)
            self._find_decoys(bench)
        self._found["correctness"] = True

    def _correctness(self, bench: Bench, secret: bytes) -> None:
        """Trials; some of them varied, and the ablation and an inspection, at secret places."""
        total = self._options.correctness_trials
        varied, large, ablated = _places(secret, total)
        inspected = secret[2] % total
        worst = Trials(passed=0, total=total)
        for number in range(total):
            agreement = bench.trial(
                secret, number, varied=number in (varied, large), large=number == large, inspect=number == inspected
            )
            worst = _worst(worst, agreement)
            self._found["trials"] = worst
            if not agreement.ok:
                raise bench.dialogue.stop(EvalStatus.INCORRECT, "WrongValues", difference(agreement))
            if number >= ablated and self._may_be_decoy(bench):
                with self._stage("ablation", bench):
                    self._ablation(bench, secret)

    def _may_be_decoy(self, bench: Bench) -> bool:
        undecided = self._options.ablation and "decoy_kernel" not in self._found
        return undecided and bool(own_launches(bench.traces[-1], bench.dialogue.file))

    def _ablation(self, bench: Bench, secret: bytes) -> None:
        ablation = Ablation(bench, secret, self._options.correctness_trials, lambda: self._begin_again(bench))
        self._found["decoy_kernel"] = ablation.finds_decoy()
        if not self._found["decoy_kernel"]:
            ablation.find_idle()

    def _exit(self, bench: Bench) -> None:
        if code := bench.dialogue.runner.finish():
            raise bench.dialogue.crash(code)

    def _take(self, bench: Bench, measured: Measurement) -> None:
        """Keep what the clock found, unless it shows that the candidate hides work."""
        self._found["env"].update(measured.facts)
        self._found.update(measured.fields(), reference_mode=self._options.reference_mode)
        self._found["hack_flags"] = lazy_flags(bench.traces, bench.work(bench.traces[-1]), bench.dialogue.file)
        if measured.refusal is not None:
            raise bench.dialogue.hacking(*measured.refusal)
        if self._device.timing_source == "simulated":
            self._refuse_hidden(bench)

    def _refuse_hidden(self, bench: Bench) -> None:
        """Refuse work that the simulated clock cannot see; a clock that measures sees it by itself."""
        if entry := hidden_work(bench.entries):
            raise bench.dialogue.hacking("hidden_work", _hidden(entry))
        pairs = zip(bench.traces, bench.works, strict=True)
        if any(moves_too_little(trace, work.events, work.written_bytes) for trace, work in pairs):
            raise bench.dialogue.hacking("impossible_trace", "fewer bytes were counted than the output has")

    def _find_decoys(self, bench: Bench) -> None:
        file, stop = bench.dialogue.file, bench.dialogue.stop
        launched = all(own_launches(trace, file) for trace in bench.traces)
        if not launched:
            text = "a forward launched no kernel of the source: its output does not come from Triton"
        elif self._found.get("decoy_kernel"):
            text = "the output stays right when the kernels are not launched: it does not come from them"
        else:
            return
        self._found["decoy_kernel"] = True
        if self._options.decoys == "record":
            return
        raise stop(EvalStatus.DECOY, "LaunchIrrelevant" if launched else "NoLaunch", text)

    @contextmanager
    def _stage(self, name: str, bench: Bench | None = None) -> Iterator[None]:
        outer = bench.dialogue.stage if bench is not None else name
        if bench is not None:
            bench.dialogue.stage = name
        start = self._now()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + self._now() - start
            if name == "correctness":  # which surrounds the ablation
                self._seconds[name] -= self._seconds.get("ablation", 0.0)
        if bench is not None:
            bench.dialogue.stage = outer

    def _now(self) -> float:
        """Seconds, not counting those spent waiting for other judges."""
        return time.perf_counter() - self._device.waited_s

    def _environment(self) -> dict[str, Any]:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": version("triton")}
        profile = {"gpu_profile": self._options.gpu_profile} if self._device.timing_source == "simulated" else {}
        rules = {"float32": self._options.float32}
        return {"device": self._device.name, **profile, **rules, **versions, **self._device.facts()}


def _refused(rule: str, message: str) -> Stop:
    return Stop(EvalStatus.REJECTED_STATIC, EvalError(stage="static", type=rule, message=message))


def _hidden(entry: Entry) -> str:
    return (
        f"a forward takes {entry.total_ms:.0f} ms of processor time, of which its launches and torch ops explain "
        f"{entry.explained_ms:.0f}: compute in kernels"
    )


def _places(secret: bytes, total: int) -> tuple[int | None, int | None, int]:
    """Which trial is varied, which has large inputs, and behind which the ablation comes.

    The ablation needs the varied trial, by which it shows what moves and what computes, and another trial behind it, so
    that a program which guesses its place has to be right about it.
    """
    if total == 1:
        return None, None, 0
    varied = 1 + secret[0] % max(1, (total - 1) // 2)
    others = [number for number in range(1, total) if number != varied] or [varied]
    last = max(varied, total - 2)
    return varied, others[secret[3] % len(others)], varied + secret[1] % (last - varied + 1)


def _worst(so_far: Trials, agreement: Agreement) -> Trials:
    def larger(one: float | None, other: float | None) -> float | None:
        return max((value for value in (one, other) if value is not None), default=None)

    return Trials(
        passed=so_far.passed + agreement.ok, total=so_far.total, first_bad_index=agreement.first_bad_index,
        max_abs=larger(so_far.max_abs, agreement.max_abs), max_rel=larger(so_far.max_rel, agreement.max_rel),
    )  # fmt: skip
