# SPDX-License-Identifier: Apache-2.0
"""The checks of the judge: by name, what is said with the check, and what shows it."""

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.env.compilation.refused_programs import TASKS
from tests.env.judge.compiling.test_stage import SLOW, tuned
from tests.env.judge.compiling.test_stage import program as compiled
from tests.env.judge.test_judge import BOMB
from tests.env.programs import HONEST, REFERENCE
from tests.env.true_size.programs import ROWS, rows
from tests.mutation.shown import Judges, Shown, attack, body, failing, passing, program, told, value
from verl_kernel.env import GymOptions, Task
from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.compilation import nvidia
from verl_kernel.env.ipc.channel import ChannelClosed, ProtocolError
from verl_kernel.env.judge.candidate_session import CpuTime
from verl_kernel.env.judge.compiling.code import CodeStore
from verl_kernel.env.judge.execution_client import ExecutionDied
from verl_kernel.env.judge.findings import Stages
from verl_kernel.env.judge.output_check import OutputCheck
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied, RunnerProcess
from verl_kernel.env.judge.runner_client import RunnerClient
from verl_kernel.env.judge.size_evaluation import SizeEvaluation
from verl_kernel.env.judge.sizes import dry_session
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE
from verl_kernel.env.tamper.hack_flags import HackFlag, read_notes
from verl_kernel.env.trace import TraceEvent

FORGED = "hacking/ForgedMessage ['forged_message']"
ANSWERS = "tests/env/judge/compiling/test_code.py::test_an_impossible_answer_is_refused_and_not_kept"
AT_THE_ENDS = "self.right(x, y)\nreturn self.torch_only(x, y) + (y.max() < 0) + (y.min() > 0)"
RIGHT_ON_ONE_TRIAL = {"correctness_trials": 1}
COMPILED = {"compile_for": "sm_90"}
REDUCED = {"true_size": "auto", "correctness_trials": 2}


def says(reply: Any) -> RunnerClient:
    """A client of a runner that answers so, or fails so."""

    def ask(request: object, budget_s: float) -> Any:
        if isinstance(reply, Exception):
            raise reply
        return reply

    runner = SimpleNamespace(ask=ask, end=print, output=b"", was_killed=False, seals=SimpleNamespace(take=lambda: b"x"))
    client = RunnerClient(runner, "/scratch", GymOptions(), Stages(SimpleNamespace(waited_s=0.0)))
    client.begun = True
    return client


def answered(reply: Any) -> Shown:
    return value(lambda: says(reply).ask({}, 1.0))


def late(**of: float) -> Shown:
    own = SimpleNamespace(is_over=lambda budget_s: of["used"] > budget_s)
    runner = SimpleNamespace(_own_time=own, _clock=lambda: of["clock"])
    return value(lambda: RunnerProcess._look_at_time(runner, 1.0, 1.0))


def charged(**measured: Any) -> Shown:
    refusal = (HackFlag.IMPOSSIBLE_TIME, "too fast")
    client = says({})
    session = SimpleNamespace(
        client=client, comparable=([], []), traces=[[]], work=lambda trace: SimpleNamespace(covered=()), source="k.py"
    )
    evaluation: Any = SimpleNamespace(
        steps=SimpleNamespace(reference=SimpleNamespace(task_flags=[])), _options=GymOptions(),
        findings=SimpleNamespace(env={}),
        _device=SimpleNamespace(seals_traces=False),
    )  # fmt: skip
    return value(lambda: SizeEvaluation._take(evaluation, session, Measurement(None, None, None, refusal=refusal)))


def outside_the_trials() -> Shown:
    """What becomes of other values that a clock is given."""
    wrong = SimpleNamespace(ok=False, max_abs=1.0, first_bad_index=None, first_bad=None, is_tf32=False)
    check = OutputCheck(reference=None, client=says({}), guard=None, tolerance="scaled", float32="ieee", strides="any")
    check._agreement = lambda *args: (wrong, None)
    return value(lambda: check.values(None, []))


def dry(reply: Any, sizes: tuple[Any, ...] = ()) -> Shown:
    """What the judge makes of a forward without data."""
    client = says({})
    return value(lambda: client.parse(lambda: dry_session._read(reply, client, sizes)))


def unlike(facts: list[Any]) -> Any:
    """What a forward without data returned, beside what it should have."""
    told = {"output": {"tensor": 0}, "tensors": facts, "events": []}
    output, inputs = SimpleNamespace(tree={"tensor": 0}, tensors=[torch.ones(1)]), SimpleNamespace(tensors=[])
    forward = SimpleNamespace(inputs=inputs, output=output, flops=0, share_read=1.0)
    return dry_session._followed(told, forward, says({}).verdict)


def too_wide(shown: Shown) -> Shown:
    """The same where no GPU takes two programs."""

    def patched(judges: Judges) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nvidia, "_GRID", (1, 1, 1))
            return shown(judges)

    return patched


STOPPED = {"stopped": {"kind": "race", "kernel": "k", "line": 1, "message": "it stopped"}}
COUNTED = dry_session.Counted([TraceEvent("launch", "k", source=CANDIDATE_FILE)], [], 1, 1.0)


def at_second_size(before: str, host: str) -> Shown:
    """The verdict on a program of which a statement depends on whether it runs at the first reduced size."""

    def judged(judges: Judges) -> str:
        judge = judges.of(**REDUCED)
        small = judge._sizes.of(Task(ROWS)).copies[0].sizes
        return told(judge.evaluate(Task(ROWS), before + rows(host.format(small[32768] * small[16384]))))

    return judged


def told_to_the_dead() -> object:
    """What becomes of a message to a runner that has ended."""
    channel = SimpleNamespace(send=failing(ChannelClosed("it has ended")))
    return RunnerProcess.tell(SimpleNamespace(channel=channel, end=lambda grace_s: 3), {})


def ended() -> object:
    """What becomes of a runner that has ended, of which another process holds the channel open."""
    nothing: Any = SimpleNamespace(
        channel=SimpleNamespace(fileno=lambda: 5), pidfd=7, _ready=lambda *args: [7], _next_look=inf
    )
    return RunnerProcess._step(nothing, 1.0, 1.0)


def killed_by_its_kernel() -> object:
    """What becomes of a forward without data whose kernel ends the executing process."""
    execution: Any = SimpleNamespace(started=failing(ExecutionDied("it ended", by_kernel=True)), end=print)
    return dry_session.DrySession._ask_both(None, execution, {}, None, None, ())


TABLE: dict[str, tuple[str, Shown]] = {
    "output-before-ablation-is-right": ("incorrect/WrongValues", body(AT_THE_ENDS, **RIGHT_ON_ONE_TRIAL)),
    "inputs-are-unchanged": ("incorrect/InputsChanged", attack("mutate_input")),
    "trace-is-sealed": ("hacking/EditedTrace", attack("edited_trace")),
    "warps-are-possible": ("passes", passing(f"{ANSWERS}[answer2]")),
    "shared-memory-is-possible": ("passes", passing(f"{ANSWERS}[answer3]")),
    "signature-is-an-object": ("passes", passing(f"{ANSWERS}[answer4]")),
    "left-out-stores-are-numbers": (
        "instructions have numbers",
        value(lambda: CodeStore.code(None, None, None, ["stores"], stopping=None, code_time=None)),
    ),
    "code-has-a-length": ("passes", passing(f"{ANSWERS}[answer0]")),
    "kernel-fits-the-target": ("compile_error/OutOfResources", program(TASKS["sum"], tuned((256, 64)), **COMPILED)),
    "grid-fits-the-target": (
        "compile_error/OutOfResources",
        too_wide(program(TASKS["sum"], compiled(launch="k[(2,)](x, y, out, 256, BLOCK=128)"), **COMPILED)),
    ),
    "launch-has-an-allocator": (
        "passes", passing("tests/env/judge/compiling/test_allocator.py::test_a_launch_without_an_allocator_is_refused")
    ),
    "configuration-fits": ("ok, paid", program(TASKS["sum"], tuned((256, 64), (64, 2), body=SLOW), **COMPILED)),
    "source-is-short": ("rejected_static/size", program(REFERENCE, f"{HONEST}#{'#' * (101 << 10)}")),
    "gate-accepts": ("rejected_static/import", program(REFERENCE, f"{HONEST}\nimport ssl\n", static_check="coverage")),
    "exit-after-timing-is-clean": ("crash/Crash", attack("crash_at_exit")),
    "output-is-right": ("incorrect/WrongValues", attack("half_the_rows")),
    "time-is-possible": ("hacking/ImpossibleTime ['impossible_time']", charged()),
    "work-is-not-hidden": ("hacking/HiddenWork", attack("hidden_python")),
    "trace-is-possible": ("hacking/ImpossibleTrace", attack("kept_constant")),
    "launches-matter": ("decoy/NoLaunch", attack("torch_only")),
    "processor-times-are-integers": ("processor times", value(lambda: CpuTime.read(1, {"own": 1.5}, 0))),
    "emulator-survives": (
        "passes", passing("tests/env/judge/test_execution_client.py::test_a_kernel_that_ends_the_process_has_crashed"),
    ),
    "launch-compiles": ("compile_error", attack("failing_launch")),
    "launch-does-not-fault": ("crash/CompiledOutOfBounds", attack("load_outside")),
    "trace-agrees-with-execution": ("hacking/EditedTrace", attack("edited_trace_invented")),
    "output-has-the-structure": ("incorrect/WrongStructure", attack("tuple_output")),
    "output-has-the-form": ("incorrect/WrongDtype", attack("wrong_dtype")),
    "output-outside-the-trials-is-right": ("incorrect/WrongValues", outside_the_trials()),
    "output-is-not-replayed": ("hacking/ReplayedOutput", attack("memo_by_address")),
    "runner-answers": ("crash/Crash", attack("exit_quietly")),
    "own-time-is-left": ("processor time and sleep", late(used=2.0, clock=0.0)),
    "wall-clock-time-is-left": ("on the wall clock", late(used=0.0, clock=2.0)),
    "grant-is-kept": ("oom/DiskExceeded", attack("endless_log")),
    "answer-is-in-time": ("timeout/Timeout", answered(TimeoutError("processor time"))),
    "answer-is-within-the-grant": ("oom/DiskExceeded", answered(GrantExceeded("DiskExceeded", "much"))),
    "answering-runner-lives": ("crash/Crash", answered(RunnerDied(3))),
    "answer-is-a-message": (FORGED, answered(ProtocolError("no message"))),
    "nothing-was-noted": ("hacking/HostAccess", attack("numpy")),
    "forward-does-not-fail": ("runtime_error/ValueError", body("raise ValueError('boo')")),
    "message-parses": (FORGED, answered({"notes": {"unheard_of": "x"}})),
    "failure-is-a-runners": (FORGED, answered({"failure": {"status": "ok", "type": "", "message": ""}})),
    "runner-listens": ("raised RunnerDied: 3", value(told_to_the_dead)),
    "runner-has-not-ended": ("raised ChannelClosed", value(ended)),
    "dry-kernel-survives": ("raised NotFollowed: it ended", value(killed_by_its_kernel)),
    "exit-after-reduced-sizes-is-clean": (
        "crash/Crash", at_second_size(BOMB, "self.bomb = getattr(self, 'bomb', None) or (Bomb() if n > {} else None)"),
    ),
    "reduced-output-is-right": ("incorrect/WrongValues", at_second_size("", "n = n if n <= {} else 0")),
    "dry-answer-has-lists": ("hacking/ForgedMessage", dry({"reasons": "", "replies": []})),
    "dry-forward-needs-no-data": ("runtime_error/WithoutData", dry({"reasons": ["it reads"], "replies": []})),
    "dry-trace-is-sealed": ("hacking/EditedTrace", dry({"reasons": [], "replies": []})),
    "dry-kernel-does-not-stop": ("it stopped", value(lambda: dry_session._refuse(STOPPED))),
    "dry-trace-agrees-with-execution": (
        "is not what its kernels did", value(lambda: dry_session._counted_dry([COUNTED], [])),
    ),
    "dry-output-is-the-verified": ("incorrect/OtherOutput", value(lambda: unlike([]))),
    "dry-forward-is-followed": ("ok, not paid", program(ROWS, rows("[] if n < 1 << 24 else [].pop()"), **REDUCED)),
    "work-does-not-depend-on-size": (
        "size_dependent", program(ROWS, rows("n = n if n < 1 << 24 else n // 2"), **REDUCED),
    ),
    "note-is-a-runners": ("a runner cannot note only_moves", value(lambda: read_notes({"only_moves": "x"}))),
}  # fmt: skip
