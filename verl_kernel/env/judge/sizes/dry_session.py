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
from verl_kernel.env.judge.executing import CandidateExecutor, Execution, ExecutionDied
from verl_kernel.env.judge.findings import Findings, Stages
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.native_trials import launched, worked
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
        is_unlike: whether it is known to fail, or to return something else than at reduced sizes.
        was_killed: whether its runner ended before it answered.
    """

    def __init__(self, reason: str, is_unlike: bool, was_killed: bool = False) -> None:
        super().__init__(reason)
        self.is_unlike, self.was_killed = is_unlike, was_killed


@dataclass(frozen=True, kw_only=True)
class DrySession:
    """Runs candidates without data, each in a runner of its own."""

    options: GymOptions
    zygote: Zygote
    stages: Stages
    timing_source: str
    executor: CandidateExecutor
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
        known = [tensor for dry in sizes for tensor in _tensors(dry) if not is_dataless(tensor)]
        specs, size = place(known)
        places = {id(tensor): spec for tensor, spec in zip(known, specs, strict=True)}
        asked = [_size(dry, places, weight_seed) for dry in sizes]
        request: DryRequest = {"entry": task.candidate_class, "seed": seed, "sizes": asked}
        with closing(Scratch(source)) as scratch, closing(SharedMemory.create(max(1, size))) as memory:
            memory.write(known, specs)
            return self._ask_both(self.executor.begin(source), request, scratch, memory, sizes)

    def _ask_both(
        self, execution: Execution, request: DryRequest, scratch: Scratch, memory: SharedMemory,
        sizes: Sequence[DryForward],
    ) -> list[Counted]:  # fmt: skip
        """Ask the runner for the forwards, and the executing process for its account of the launches."""
        try:
            execution.started()
            execution.begin(request["seed"], watch=False, shows="all", refuses=True, backwards=False, sampled=True)
            try:
                found = self._ask(request, scratch, memory, sizes, execution)
            except NotFollowed as exc:
                if not exc.was_killed:  # a killed runner's launch may still run
                    _refuse(execution.report())
                raise
            reported = execution.report()
            _refuse(reported)
            return _counted_dry(found, reported["works"])
        except ExecutionDied as exc:
            if not exc.by_kernel:
                raise
            raise NotFollowed(str(exc), False) from None  # check: dry-kernel-survives
        finally:
            execution.end()

    def _ask(
        self, request: DryRequest, scratch: Scratch, memory: SharedMemory, sizes: Sequence[DryForward],
        execution: Execution,
    ) -> list[Counted]:  # fmt: skip
        found = Findings(self.timing_source, {})
        loading = Loading(options=self.options, zygote=self.zygote, scratch=scratch, memory=memory, findings=found)
        link = (execution.link.fileno(), execution.arena.fd)
        runner = self.zygote.fork(scratch.path, memory, self.options, link, execution.arena.size)
        execution.serve(runner)
        client = RunnerClient(runner, scratch.path, self.options, self.stages)
        try:
            loading.begin(client)
            reply = client.ask({"dry": request}, self.options.run_timeout_s)
            return client.parse(lambda: _read(reply, client, sizes))
        except Verdict as verdict:
            is_unlike = verdict.status is EvalStatus.INCORRECT
            text = f"{verdict.error.type}: {verdict.error.message}"
            raise NotFollowed(text, is_unlike, was_killed=not runner.alive) from None  # check: dry-forward-is-followed
        finally:
            runner.end()


def _size(dry: DryForward, places: dict[int, TensorSpec], weight_seed: int) -> DrySize:
    def specs(tensors: list[torch.Tensor]) -> list[Place]:
        return [(places.get(id(tensor)) or _without_data(tensor)).to_json() for tensor in tensors]

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
    found = [_followed(item, dry, client.verdict) for item, dry in zip(replies, sizes, strict=True)]
    if client.runner.seals.take() != b"".join(seals(one.events) for one in found):
        # check: dry-trace-is-sealed
        raise client.hacking(HackFlag.EDITED_TRACE, "the record of a forward without data is not what happened in it")
    return [replace(one, events=[_named_alike(event, client.file) for event in one.events]) for one in found]


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
        raise NotFollowed(sentence, is_unlike=stopped["kind"] == ALWAYS_BEYOND)


def _counted_dry(found: list[Counted], works: Sequence[Work]) -> list[Counted]:
    """Add the executing process's account of the launches to the forwards (raises NotFollowed if they differ)."""
    left = list(works)
    counted = []
    for one in found:
        launches = own_launches(one.events, CANDIDATE_FILE)
        own, left = left[: len(launches)], left[len(launches) :]
        if list(map(launched, launches)) != list(map(worked, own)):
            # check: dry-trace-agrees-with-execution
            raise NotFollowed("the record of a forward without data is not what its kernels did", False)
        counted.append(replace(one, tallies=[work["tally"] for work in own], works=own))
    return counted


def _followed(item: Claims, dry: DryForward, verdict: Callable[..., Verdict]) -> Counted:
    given = read_facts(item["tensors"])
    owned = storages(dry.inputs.tensors)
    wanted = [tensor_facts(tensor, owned) for tensor in dry.output.tensors]
    is_alike = item["output"] == dry.output.tree and len(wanted) == len(given)
    wrong = disagreement(wanted, given, "any") if is_alike else None
    if not is_alike or wrong:
        text = wrong[1] if wrong else "the output is not structured like the reference's"
        # check: dry-output-is-the-verified
        raise verdict(EvalStatus.INCORRECT, "OtherOutput", f"at the true size {text}")
    return Counted(load_events(item["events"]), [], dry.flops, dry.share_read, functions=functions(dry.events))
