# SPDX-License-Identifier: Apache-2.0
"""What references run where `torch.compile` compiles them, counted once per task on a device without a GPU.

Inductor writes its kernels for an H100 (`env.inductor`). They form a program like a candidate, which is followed
without data at the task's own size, and timed like a candidate: there is one way to price a kernel. The program is the
judge's own, and its failure is never a candidate's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from verl_kernel.env.clocks.base import CompiledReference
from verl_kernel.env.compilation.description import Unit, function_texts
from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.gpus import gpu_named
from verl_kernel.env.judge.compiling.compiler import LaunchCompiler
from verl_kernel.env.judge.compiling.stage import occupancy
from verl_kernel.env.judge.execution_client import LaunchEmulator
from verl_kernel.env.judge.findings import Stages
from verl_kernel.env.judge.processes.inductor import Inductor, NotCompiled
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.judge.sizes.dry_session import DrySession, NotFollowed
from verl_kernel.env.lru import LRUCache
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.disk_cache import ReferenceCache
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.task import Task, not_compiled
from verl_kernel.env.trace import TraceEvent, dump_events, load_events
from verl_kernel.env.true_size.dry_pass import DryForward, dry_forward
from verl_kernel.errors import TaskError

_TASKS = 1024
"""Most tasks whose compiled reference is remembered."""
_SIZED = "its inputs have other sizes in each draw"


class CompiledReferences:
    """The compiled references of a judge.

    Args:
        options: limits, and the mode of references.
        device: where references run.
        zygote: forks the process that follows a program.
        emulator: counts its launches.
        compiler: compiles them for a target; None if that is not asked for.
        store: keeps what was found over restarts; None for nowhere.
        guard: is entered around every call of a reference.
    """

    def __init__(
        self,
        options: GymOptions,
        device: DeviceBackend,
        zygote: Zygote,
        emulator: LaunchEmulator,
        *,
        compiler: LaunchCompiler | None,
        store: ReferenceCache | None,
        guard: Callable[[], AbstractContextManager[object]],
    ) -> None:
        # The program is the reference's, so it has the reference's limit and not a candidate's.
        self._options = replace(options, run_timeout_s=options.reference_timeout_s)
        self._device, self._zygote, self._emulator, self._compiler = device, zygote, emulator, compiler
        self._store, self._guard, self.inductor = store, guard, Inductor()
        self._references: LRUCache[CompiledReference] = LRUCache(_TASKS)

    def of(self, task: Task, is_sized: bool) -> CompiledReference:
        """Return what a task's reference runs if it is compiled.

        Args:
            task: the task.
            is_sized: whether its sizes differ between draws.

        Raises:
            TaskError: there is no compiled form, and `reference_mode` asks for it alone.
            InfraError: a process failed.
        """
        reference = CompiledReference(refused=_SIZED) if is_sized else self._references.get(task.cache_key)
        if reference is None:
            reference = self._references.put(task.cache_key, self._stored_or_counted(task))
        if reference.refused and self._options.reference_mode == "compile":
            raise not_compiled(task, reference.refused)
        return reference

    def _stored_or_counted(self, task: Task) -> CompiledReference:
        """Return what was stored or is found now; only what was found is stored, as limits may be reached by chance."""
        stored = None if self._store is None else self._store.load_facts(task, self._name)
        if stored is not None:
            return CompiledReference(load_events(stored["events"]), stored["blocks_per_sm"])
        try:
            reference = self._followed(task)
        except (NotCompiled, NotFollowed) as exc:
            return CompiledReference(refused=str(exc))
        if self._store is not None:
            facts = {"events": dump_events(reference.events), "blocks_per_sm": dict(reference.blocks_per_sm)}
            self._store.save_facts(task, self._name, facts)
        return reference

    @property
    def _name(self) -> str:
        """Name of what is stored, by all options on which it depends."""
        return f"compiled-{self._options.float32}-{self._compiler.target.name if self._compiler else 'off'}"

    def _followed(self, task: Task) -> CompiledReference:
        dry, emulator = self._dry(task), self._emulator.for_candidate(task.namespace)
        program = self.inductor.program(task, self._options.float32, self._options.reference_timeout_s)
        session = DrySession(
            options=self._options,
            zygote=self._zygote,
            stages=Stages(self._device),
            timing_source=self._device.timing_source,
            emulator=emulator,
        )
        # Of the task alone: each judge samples the same programs, so a reference has one time.
        seed = seed_of(b"compiled", task.fingerprint.encode())
        (counted,) = session.follow(task, program.source, [dry], seed, seed)
        # Each variant once, in the order of the forward.
        launched = dict.fromkeys(event.variant for event in counted.events if event.kind == "launch")
        fitting = self._occupancy(task, program.source, [emulator.units[variant] for variant in launched])
        return CompiledReference(_on_host(counted.events, program.graphs), fitting)

    def _occupancy(self, task: Task, source: str, units: Iterable[Unit]) -> dict[str, int]:
        """Return how many blocks of each kernel an SM of the target holds."""
        if self._compiler is None:
            return {}
        job = self._compiler.job(source, function_texts(source), task.namespace)
        try:
            for unit in units:
                job.add(unit)
            results = ((unit, outcome.result) for unit, outcome in job.result())
            resources = ((unit, used) for unit, used in results if isinstance(used, Resources))
            return occupancy((unit.functions[0].name, self._compiler.target.blocks(used)) for unit, used in resources)
        finally:
            job.stop()

    def _dry(self, task: Task) -> DryForward:
        try:
            with self._guard():
                return dry_forward(task, self._device)
        except TaskError as exc:
            raise NotCompiled(str(exc)) from None


def _on_host(events: Sequence[TraceEvent], graphs: int) -> list[TraceEvent]:
    """Return the events with the host's time for what Inductor issues, and for its graphs before the first event."""
    launch_us, graph_us = (int(constant(name)) for name in ("inductor_launch_us", "inductor_graph_us"))
    # Ops of torch keep their own host time; a graph's guards and wrappers run before its first event.
    issued = [replace(event, host_us=launch_us) if event.kind == "launch" else event for event in events]
    return [replace(issued[0], host_us=issued[0].host_us + graphs * graph_us), *issued[1:]] if issued else []


def make_compiled_references(
    options: GymOptions,
    device: DeviceBackend,
    zygote: Zygote,
    emulator: LaunchEmulator | None,
    *,
    compilers: Sequence[LaunchCompiler],
    store: ReferenceCache | None,
    guard: Callable[[], AbstractContextManager[object]],
) -> CompiledReferences | None:
    """Make what counts compiled references; None if they are not asked for, or are measured."""
    if options.reference_mode == "eager" or emulator is None:
        return None
    priced = gpu_named(options.gpu_profile).targets
    compiler = next((each for each in compilers if each.target.name.startswith(priced)), None)
    return CompiledReferences(options, device, zygote, emulator, compiler=compiler, store=store, guard=guard)
