# SPDX-License-Identifier: Apache-2.0
"""Forwards without data, in a jailed runner: what a candidate would run at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from verl_kernel.env.ipc.execution_messages import ALWAYS_BEYOND, Reported, Work
from verl_kernel.env.ipc.messages import Claims, DryRequest, DrySize, Place
from verl_kernel.env.ipc.shared_memory import SharedMemory, TensorSpec, place
from verl_kernel.env.ipc.tensor_facts import disagreement, read_facts, storages, tensor_facts
from verl_kernel.env.judge.execution_client import CandidateEmulator, Execution, ExecutionDied
from verl_kernel.env.judge.findings import Findings, Stages
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.native_trials import event_fields, work_fields
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.judge.runner_client import ADDRESS, RunnerClient, Verdict
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE, Scratch
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.seals import seals
from verl_kernel.env.tamper.trace_checks import own_launches
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent, load_events
from verl_kernel.env.true_size.consistency import Counted, functions
from verl_kernel.env.true_size.dataless import is_dataless
from verl_kernel.env.true_size.dry_pass import DryForward


class NotFollowed(Exception):
    """A candidate cannot run without data; the sentence says why.

    Args:
        reason: the sentence.
        is_mismatch: whether it is known to fail, or to return something else than at reduced sizes.
        was_killed: whether its runner ended before it answered.
    """

    def __init__(self, reason: str, is_mismatch: bool, was_killed: bool = False) -> None:
        super().__init__(reason)
        self.is_mismatch, self.was_killed = is_mismatch, was_killed


@dataclass(frozen=True, kw_only=True)
class DrySession:
    """Runs candidates without data, each in a runner of its own."""

    options: GymOptions
    zygote: Zygote
    stages: Stages
    timing_source: str
    emulator: CandidateEmulator
    """Samples launches."""

    def follow(
        self, task: Task, source: str, sizes: Sequence[DryForward], seed: int, weight_seed: int
    ) -> list[Counted]:
        """Return what the candidate runs at each of the sizes.

        Args:
            task: what the candidate computes.
            source: the candidate's text.
            sizes: the reference's forwards without data.
            seed: draws the sampled programs of a grid and the places of tensors.
            weight_seed: the model is built with it.

        Raises:
            NotFollowed: the candidate cannot run without data, or its outputs have another form than the reference's.
            InfraError: the runner did not start.
        """
        self.zygote.prepare()
        with_data = [tensor for dry in sizes for tensor in _tensors(dry) if not is_dataless(tensor)]
        specs, size = place(with_data)
        specs_of = {id(tensor): spec for tensor, spec in zip(with_data, specs, strict=True)}
        requested = [_size(dry, specs_of, weight_seed) for dry in sizes]
        request: DryRequest = {"entry": task.candidate_class, "seed": seed, "sizes": requested}
        with closing(Scratch(source)) as scratch, closing(SharedMemory.create(max(1, size))) as memory:
            memory.write(with_data, specs)
            return self._ask_both(self.emulator.begin(source), request, scratch, memory, sizes)

    def _ask_both(
        self,
        execution: Execution,
        request: DryRequest,
        scratch: Scratch,
        memory: SharedMemory,
        sizes: Sequence[DryForward],
    ) -> list[Counted]:
        """Ask the runner for the forwards, and the executing process for its account of the launches."""
        try:
            execution.started()
            execution.begin(seed=request["seed"], watch=False, shows="all", refuses=True, backwards=False, sampled=True)
            try:
                forwards = self._ask(request, scratch, memory, sizes, execution)
            except NotFollowed as exc:
                # What stopped a launch says more than the runner's error about it.
                if not exc.was_killed:  # a killed runner's launch may still run
                    _refuse(execution.report())
                raise
            reported = execution.report()
            _refuse(reported)
            return _counted_dry(forwards, reported["works"])
        except ExecutionDied as exc:
            if not exc.by_kernel:
                raise
            raise NotFollowed(str(exc), False) from None  # check: dry-kernel-survives
        finally:
            execution.end()

    def _ask(
        self,
        request: DryRequest,
        scratch: Scratch,
        memory: SharedMemory,
        sizes: Sequence[DryForward],
        execution: Execution,
    ) -> list[Counted]:
        findings = Findings(self.timing_source, {})
        loading = Loading(options=self.options, zygote=self.zygote, scratch=scratch, memory=memory, findings=findings)
        link = (execution.link.fileno(), execution.arena.fd)
        runner = self.zygote.fork(scratch.path, memory, self.options, link, execution.arena.size)
        execution.serve(runner)
        client = RunnerClient(runner, scratch.path, self.options, self.stages)
        try:
            loading.begin(client)
            reply = client.ask({"dry": request}, self.options.run_timeout_s)
            return client.parse(lambda: _read(reply, client, sizes))
        except Verdict as verdict:
            is_mismatch = verdict.status is EvalStatus.INCORRECT
            text = f"{verdict.error.type}: {verdict.error.message}"
            # check: dry-forward-is-followed
            raise NotFollowed(text, is_mismatch, was_killed=not runner.alive) from None
        finally:
            runner.end()


def _size(dry: DryForward, specs_of: dict[int, TensorSpec], weight_seed: int) -> DrySize:
    def specs(tensors: list[torch.Tensor]) -> list[Place]:
        return [(specs_of.get(id(tensor)) or _without_data(tensor)).to_json() for tensor in tensors]

    return {
        "seed": weight_seed,
        "init": dry.init.tree,
        "init_specs": specs(dry.init.tensors),
        "inputs": dry.inputs.tree,
        "specs": specs(dry.inputs.tensors),
    }


def _tensors(dry: DryForward) -> list[torch.Tensor]:
    return [*dry.init.tensors, *dry.inputs.tensors]


def _without_data(tensor: torch.Tensor) -> TensorSpec:
    name = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(name, tuple(tensor.shape), tuple(tensor.stride()), -1)


def _read(reply: Claims, client: RunnerClient, sizes: Sequence[DryForward]) -> list[Counted]:
    reasons, replies = reply["reasons"], reply["replies"]
    if not isinstance(reasons, list) or not isinstance(replies, list):
        raise ValueError("an answer without data needs lists of reasons and replies")  # check: dry-answer-has-lists
    if reasons or len(replies) != len(sizes):
        # check: dry-forward-needs-no-data
        raise client.verdict(EvalStatus.RUNTIME_ERROR, "WithoutData", str((reasons or ["it ended early"])[0]))
    forwards = [_followed(item, dry, client.verdict) for item, dry in zip(replies, sizes, strict=True)]
    # One stream of seals for all sizes: the runner ran them one after the other.
    if client.runner.seals.take() != b"".join(seals(forward.events) for forward in forwards):
        # check: dry-trace-is-sealed
        raise client.hacking(HackFlag.EDITED_TRACE, "the record of a forward without data is not what happened in it")
    return [
        replace(forward, events=[_named_alike(event, client.file) for event in forward.events]) for forward in forwards
    ]


def _named_alike(event: TraceEvent, file: str) -> TraceEvent:
    """Return the event with a name of the candidate's file that is the same for all runners."""
    return replace(event, source=CANDIDATE_FILE) if event.source == file else event


def _refuse(reported: Reported) -> None:
    """Raise NotFollowed if a launch was stopped."""
    if (stopped := reported["stopped"]) is not None:
        line = "" if stopped["line"] is None else f"line {stopped['line']}, "
        message = ADDRESS.sub("0x...", stopped["message"])
        sentence = f"{line}in {stopped['kernel']}, on tensors without data: {message}"
        # check: dry-kernel-does-not-stop
        raise NotFollowed(sentence, is_mismatch=stopped["kind"] == ALWAYS_BEYOND)


def _counted_dry(forwards: list[Counted], works: Sequence[Work]) -> list[Counted]:
    """Add the executing process's account of the launches to the forwards (raises NotFollowed if they differ)."""
    # One account for all forwards together, in the order of their launches.
    remaining = list(works)
    counted = []
    for forward in forwards:
        launches = own_launches(forward.events, CANDIDATE_FILE)
        own, remaining = remaining[: len(launches)], remaining[len(launches) :]
        if list(map(event_fields, launches)) != list(map(work_fields, own)):
            # check: dry-trace-agrees-with-execution
            raise NotFollowed("the record of a forward without data is not what its kernels did", False)
        counted.append(replace(forward, tallies=[work["tally"] for work in own], works=own))
    return counted


def _followed(item: Claims, dry: DryForward, verdict: Callable[..., Verdict]) -> Counted:
    actual = read_facts(item["tensors"])
    owned = storages(dry.inputs.tensors)
    expected = [tensor_facts(tensor, owned) for tensor in dry.output.tensors]
    is_alike = item["output"] == dry.output.tree and len(expected) == len(actual)
    mismatch = disagreement(expected, actual, "any") if is_alike else None
    if not is_alike or mismatch:
        text = mismatch[1] if mismatch else "the output is not structured like the reference's"
        # check: dry-output-is-the-verified
        raise verdict(EvalStatus.INCORRECT, "OtherOutput", f"at the true size {text}")
    return Counted(load_events(item["events"]), [], dry.flops, dry.share_read, functions=functions(dry.events))
