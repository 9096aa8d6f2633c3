# SPDX-License-Identifier: Apache-2.0
"""Loads a candidate into a runner, and into another one if the first ends before the trials do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

from verl_kernel.env.ipc.messages import LoadRequest, Started
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.candidate_session import CandidateSession, MemoryLayout
from verl_kernel.env.judge.execution_client import Execution
from verl_kernel.env.judge.findings import Findings, Stages
from verl_kernel.env.judge.output_check import OutputCheck
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.judge.runner_client import RunnerClient, Verdict
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.errors import EnvironmentNotReady, InfraError


class Loading:
    """Loads one candidate.

    Args:
        options: limits, and the mechanisms of isolation that must be in force.
        zygote: forks its runners.
        scratch: holds the candidate's file.
        memory: large enough for the reference's layout.
        findings: where the results of the load are noted.
        describe: variants that autotuners skip, where runners describe their launches for a compiler; else None.
        execution: begins an executing process for a runner; None if the device runs kernels itself.
    """

    def __init__(
        self,
        *,
        options: GymOptions,
        zygote: Zygote,
        scratch: Scratch,
        memory: SharedMemory,
        findings: Findings,
        describe: list[str] | None = None,
        execution: Callable[[], Execution] | None = None,
    ) -> None:
        self._options, self._zygote, self._scratch, self._memory = options, zygote, scratch, memory
        self._findings, self._describe, self._begin_execution = findings, describe, execution
        self.execution: Execution | None = None
        """The executing process of the latest runner."""
        self._has_initial = False

    @property
    def source(self) -> str:
        """The candidate's text."""
        return self._scratch.source

    def start(
        self,
        reference: Reference,
        *,
        layout: MemoryLayout,
        stages: Stages,
        guard: Callable[[], AbstractContextManager[object]],
        is_sealed: bool,
    ) -> CandidateSession:
        """Fork a runner and put the constants into shared memory; the runner then waits for its first request."""
        self._memory.write(layout.constants, layout.specs)
        client = RunnerClient(self._fork(), self._scratch.path, self._options, stages)
        return self._session(reference, layout, client, guard, is_sealed)

    def at_size(self, earlier: CandidateSession, reference: Reference, *, renew: bool) -> CandidateSession:
        """Return the candidate at another size of its task, in the same runner (raises what `load` raises).

        Args:
            earlier: the candidate at the size before.
            reference: of the next size.
            renew: whether it is loaded into another runner, as this one cannot go on.
        """
        layout = MemoryLayout(reference)
        session = self._session(reference, layout, earlier.client, earlier.guard, earlier.is_sealed)
        if renew or not reference.shares_weights(earlier.reference):
            session.client.runner.end()
            self.again(session)
        else:
            reference.use_weights(initial=self._has_initial)
        return session

    def _session(
        self,
        reference: Reference,
        layout: MemoryLayout,
        client: RunnerClient,
        guard: Callable[[], AbstractContextManager[object]],
        is_sealed: bool,
    ) -> CandidateSession:
        options = self._options
        check = OutputCheck(
            reference=reference,
            client=client,
            guard=guard,
            tolerance=options.tolerance,
            float32=options.float32,
            strides=options.strides,
        )
        return CandidateSession(
            reference=reference,
            client=client,
            memory=self._memory,
            layout=layout,
            guard=guard,
            check=check,
            is_sealed=is_sealed,
            seconds_granted=options.run_timeout_s,
            text=self.source,
        )

    def load(self, session: CandidateSession) -> None:
        """Import the source and build its model (raises Verdict).

        Args:
            session: its runner gets the model.

        Raises:
            InfraError: the runner did not start.
            EnvironmentNotReady: a mechanism of `require_isolation` is not in force.
        """
        reference, client = session.reference, session.client
        self.begin(client)
        # Weights lie behind the constructor's arguments in shared memory; the request names them by position.
        first = len(reference.init.tensors)
        request: LoadRequest = {
            "entry": reference.task.candidate_class,
            "seed": reference.weight_seed,
            "init": reference.init.tree,
            "specs": [spec.to_json() for spec in session.layout.specs],
            "state": {name: first + number for number, name in enumerate(reference.state)},
            "constants": reference.constants,
            "structured": [*reference.structured],
            "describe": self._describe,
        }
        reply = client.ask({"load": request}, self._options.load_timeout_s)
        self._findings.compiled = True
        self._findings.env["weights"] = weights = client.parse(lambda: str(reply["weights"]))
        # The runner's word decides only which weights both sides use, and "seeded" costs it its speedup.
        self._has_initial = weights == "seeded"
        reference.use_weights(initial=self._has_initial)

    def begin(self, client: RunnerClient) -> None:
        """Wait until a runner is ready for its first request (raises what `load` raises)."""
        self._require(self._first_words(client))
        if self.execution is not None:
            self.execution.started()
        client.begun = True

    def again(self, session: CandidateSession) -> None:
        """Load the candidate into another runner, for the remaining trials."""
        # Whatever the earlier runner wrote to files or to shared memory is gone: nothing passes from one to the next.
        self._scratch.renew()
        session.client.runner = self._fork()
        self._memory.write(session.layout.constants, session.layout.specs)
        self.load(session)

    def _fork(self) -> RunnerProcess:
        self.end()
        if self._begin_execution is None:
            return self._zygote.fork(self._scratch.path, self._memory, self._options)
        self.execution = execution = self._begin_execution()
        link = (execution.link.fileno(), execution.arena.fd)
        runner = self._zygote.fork(self._scratch.path, self._memory, self._options, link, execution.arena.size)
        try:
            execution.serve(runner)
        except InfraError:  # the executing process did not start: the runner would wait for it for ever
            runner.end()
            raise
        return runner

    def dismiss(self) -> None:
        """Kill the executing process, if there is one, without waiting for its end, once there are no more launches."""
        if self.execution is not None:
            self.execution.dismiss()

    def end(self) -> None:
        """End the executing process, if there is one (raises InfraError if making its code failed)."""
        if self.execution is not None:
            self.execution.end()
            if self.execution.failure is not None:
                raise self.execution.failure

    def _first_words(self, client: RunnerClient) -> tuple[str, ...]:
        """Return the isolation that the runner reports before it has a candidate; a failure here is the gym's."""
        try:
            # The first message comes before any of the candidate's code runs, so that it can be believed.
            started = cast(Started, client.ask(None, self._options.load_timeout_s))
        except Verdict as verdict:
            raise InfraError(f"a runner did not start: {verdict.error.message}") from None
        if "unfit" in started:
            raise InfraError(started["unfit"])
        return tuple(started["isolation"])

    def _require(self, isolation: tuple[str, ...]) -> None:
        self._findings.isolation = isolation
        missing = sorted(set(self._options.require_isolation) - set(isolation))
        if missing:
            raise EnvironmentNotReady(
                f"kernelgym.require_isolation names {', '.join(missing)}, which this machine does not offer or this "
                f"package does not know; in force are {', '.join(isolation)}"
            )
