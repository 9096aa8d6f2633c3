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
from tests.env.programs import HONEST, REFERENCE
from tests.env.true_size.programs import ROWS, rows
from tests.mutation.shown import Judges, Shown, attack, body, passing, program, told, value
from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.compilation import nvidia
from verl_kernel.env.ipc.channel import ChannelClosed, ProtocolError
from verl_kernel.env.judge.candidate_session import CpuTime
from verl_kernel.env.judge.compiling.code import CodeStore
from verl_kernel.env.judge.evaluation import Evaluation
from verl_kernel.env.judge.executing import ExecutionDied
from verl_kernel.env.judge.findings import Stages
from verl_kernel.env.judge.output_check import OutputCheck
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied, RunnerProcess
from verl_kernel.env.judge.runner_client import RunnerClient
from verl_kernel.env.judge.sizes import dry_session
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE
from verl_kernel.env.tamper.hack_flags import HackFlag, read_notes
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent

FORGED = "hacking/ForgedMessage ['forged_message']"
ANSWERS = "tests/env/judge/compiling/test_code.py::test_an_impossible_answer_is_refused_and_not_kept"
AT_THE_ENDS = "self.right(x, y)\nreturn self.torch_only(x, y) + (y.max() < 0) + (y.min() > 0)"
RIGHT_ON_ONE_TRIAL = {"correctness_trials": 1}
COMPILED = {"compile_for": "sm_90"}
REDUCED = {"true_size": "auto", "correctness_trials": 2}
LARGE = "x.numel() > 1 << 24"


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
    """What the judge makes of a runner's answer."""
    return value(lambda: says(reply).ask({}, 1.0))


def late(**of: float) -> Shown:
    """Whether a runner is out of time."""
    own = SimpleNamespace(is_over=lambda budget_s: of["used"] > budget_s)
    runner = SimpleNamespace(_own_time=own, _clock=lambda: of["clock"])
    return value(lambda: RunnerProcess._look_at_time(runner, 1.0, 1.0))


def charged(**measured: Any) -> Shown:
    """What becomes of a measurement."""
    refusal = (HackFlag.IMPOSSIBLE_TIME, "too fast")
    client = says({})
    session = SimpleNamespace(
        client=client, comparable=([], []), traces=[[]], work=lambda trace: SimpleNamespace(covered=()), source="k.py"
    )
    evaluation: Any = SimpleNamespace(
        _reference=SimpleNamespace(task_flags=[]), _options=GymOptions(), _found=SimpleNamespace(env={}),
        _device=SimpleNamespace(seals_traces=False),
    )  # fmt: skip
    return value(lambda: Evaluation._take(evaluation, session, Measurement(None, None, None, refusal=refusal)))


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
BOMB = """import ctypes
class Bomb:
    def __del__(self, boom=ctypes.string_at): boom(0)
"""


def at_second_size(before: str, host: str) -> Shown:
    """The verdict on a program of which a statement depends on whether it runs at the first reduced size."""

    def judged(judges: Judges) -> str:
        judge = judges.of(**REDUCED)
        small = judge._sizes.of(Task(ROWS)).copies[0].sizes
        return told(judge.evaluate(Task(ROWS), before + rows(host.format(small[32768] * small[16384]))))

    return judged


def told_to_the_dead() -> object:
    """What becomes of a message to a runner that has ended."""

    def send(message: object) -> None:
        raise ChannelClosed("it has ended")

    return RunnerProcess.tell(SimpleNamespace(channel=SimpleNamespace(send=send), end=lambda grace_s: 3), {})


def ended() -> object:
    """What becomes of a runner that has ended, of which another process holds the channel open."""
    nothing: Any = SimpleNamespace(
        channel=SimpleNamespace(fileno=lambda: 5), pidfd=7, _ready=lambda *args: [7], _next_look=inf
    )
    return RunnerProcess._step(nothing, 1.0, 1.0)


def killed_by_its_kernel() -> object:
    """What becomes of a forward without data whose kernel ends the executing process."""

    def started() -> None:
        raise ExecutionDied("it ended", by_kernel=True)

    execution: Any = SimpleNamespace(started=started, end=print)
    return dry_session.DrySession._ask_both(None, execution, {}, None, None, ())


TABLE: dict[str, tuple[str, Shown]] = {
    "judge.ablation:Ablation.finds_decoy": ("incorrect/WrongValues", body(AT_THE_ENDS, **RIGHT_ON_ONE_TRIAL)),
    "judge.candidate_session:CandidateSession.forward": ("incorrect/InputsChanged", attack("mutate_input")),
    "judge.candidate_session:CandidateSession._run": ("hacking/EditedTrace", attack("edited_trace")),
    "judge.compiling.code:Translation.__post_init__": ("passes", passing(f"{ANSWERS}[answer2]")),
    "judge.compiling.code:Translation.__post_init__ 2": ("passes", passing(f"{ANSWERS}[answer3]")),
    "judge.compiling.code:Translation.__post_init__ 3": ("passes", passing(f"{ANSWERS}[answer4]")),
    "judge.compiling.code:CodeStore.code": (
        "instructions have numbers",
        value(lambda: CodeStore.code(None, None, None, ["stores"], None, None)),
    ),
    "judge.compiling.code:_read": ("passes", passing(f"{ANSWERS}[answer0]")),
    "judge.compiling.stage:CompileStage._compiled": (
        "compile_error/OutOfResources",
        program(TASKS["sum"], tuned((256, 64)), **COMPILED),
    ),
    "judge.compiling.stage:CompileStage._compiled 2": (
        "compile_error/OutOfResources",
        too_wide(program(TASKS["sum"], compiled(launch="k[(2,)](x, y, out, 256, BLOCK=128)"), **COMPILED)),
    ),
    "judge.compiling.stage:CompileStage._refuse_configuration": (
        "ok, paid",
        program(TASKS["sum"], tuned((256, 64), (64, 2), body=SLOW), **COMPILED),
    ),
    "judge.evaluation:Evaluation._static": (
        "rejected_static/size",
        program(REFERENCE, f"{HONEST}#{'#' * (101 << 10)}"),
    ),
    "judge.evaluation:Evaluation._static 2": (
        "rejected_static/import",
        program(REFERENCE, f"{HONEST}\nimport sys\n", static_check="coverage"),
    ),
    "judge.evaluation:Evaluation._time": ("crash/Crash", attack("crash_at_exit")),
    "judge.trials.correctness:_trial": ("incorrect/WrongValues", attack("half_the_rows")),
    "judge.evaluation:Evaluation._take": ("hacking/ImpossibleTime ['impossible_time']", charged()),
    "judge.evaluation:Evaluation._refuse_hidden": ("hacking/HiddenWork", attack("hidden_python")),
    "judge.evaluation:Evaluation._refuse_hidden 2": ("hacking/ImpossibleTrace", attack("kept_constant")),
    "judge.evaluation:Evaluation._find_decoys": ("decoy/NoLaunch", attack("torch_only")),
    "judge.candidate_session:CpuTime.read": ("processor times", value(lambda: CpuTime.read(1, {"own": 1.5}, 0))),
    "judge.native_trials:NativeTrials._guarded": (
        "passes",
        passing("tests/env/judge/test_executing.py::test_a_kernel_that_ends_the_process_has_crashed"),
    ),
    "judge.native_trials:NativeTrials._refuse": ("compile_error", attack("failing_launch")),
    "judge.native_trials:NativeTrials._refuse 2": ("crash/CompiledOutOfBounds", attack("load_outside")),
    "judge.native_trials:_compare": ("hacking/EditedTrace", attack("edited_trace_invented")),
    "judge.output_check:OutputCheck.form": ("incorrect/WrongStructure", attack("tuple_output")),
    "judge.output_check:OutputCheck.form 2": ("incorrect/WrongDtype", attack("wrong_dtype")),
    "judge.output_check:OutputCheck.values": ("incorrect/WrongValues", outside_the_trials()),
    "judge.output_check:OutputCheck._refuse_replay": ("hacking/ReplayedOutput", attack("memo_by_address")),
    "judge.processes.runner:RunnerProcess.ask": ("crash/Crash", attack("exit_quietly")),
    "judge.processes.runner:RunnerProcess._look_at_time": ("processor time and sleep", late(used=2.0, clock=0.0)),
    "judge.processes.runner:RunnerProcess._look_at_time 2": ("on the wall clock", late(used=0.0, clock=2.0)),
    "judge.processes.runner:RunnerProcess._refuse": ("oom/DiskExceeded", attack("endless_log")),
    "judge.runner_client:RunnerClient.ask": ("timeout/Timeout", answered(TimeoutError("processor time"))),
    "judge.runner_client:RunnerClient.ask 2": ("oom/DiskExceeded", answered(GrantExceeded("DiskExceeded", "much"))),
    "judge.runner_client:RunnerClient.ask 3": ("crash/Crash", answered(RunnerDied(3))),
    "judge.runner_client:RunnerClient.ask 4": (FORGED, answered(ProtocolError("no message"))),
    "judge.runner_client:RunnerClient.ask 5": ("hacking/HostAccess", attack("numpy")),
    "judge.runner_client:RunnerClient.ask 6": ("runtime_error/ValueError", body("raise ValueError('boo')")),
    "judge.runner_client:RunnerClient.parse": (FORGED, answered({"notes": {"unheard_of": "x"}})),
    "judge.runner_client:RunnerClient._failure": (
        FORGED,
        answered({"failure": {"status": "ok", "type": "", "message": ""}}),
    ),
    "judge.processes.runner:RunnerProcess.tell": ("raised RunnerDied: 3", value(told_to_the_dead)),
    "judge.processes.runner:RunnerProcess._step": ("raised ChannelClosed", value(ended)),
    "judge.sizes.dry_session:DrySession._ask_both": (
        "raised NotFollowed: it ended",
        value(killed_by_its_kernel),
    ),
    "judge.sizes.reduced_times:ReducedTimes._verified": (
        "crash/Crash",
        at_second_size(BOMB, "self.bomb = getattr(self, 'bomb', None) or (Bomb() if n > {} else None)"),
    ),
    "judge.sizes.reduced_times:_further_trials": (
        "incorrect/WrongValues",
        at_second_size("", "n = n if n <= {} else 0"),
    ),
    "judge.sizes.dry_session:_read": ("hacking/ForgedMessage", dry({"reasons": "", "replies": []})),
    "judge.sizes.dry_session:_read 2": (
        "runtime_error/WithoutData",
        dry({"reasons": ["it reads"], "replies": []}),
    ),
    "judge.sizes.dry_session:_read 3": ("hacking/EditedTrace", dry({"reasons": [], "replies": []})),
    "judge.sizes.dry_session:_refuse": ("it stopped", value(lambda: dry_session._refuse(STOPPED))),
    "judge.sizes.dry_session:_counted_dry": (
        "is not what its kernels did",
        value(lambda: dry_session._counted_dry([COUNTED], [])),
    ),
    "judge.sizes.dry_session:_followed": ("incorrect/OtherOutput", value(lambda: unlike([]))),
    "judge.sizes.dry_session:DrySession._ask": (
        "ok, not paid",
        program(ROWS, rows("[] if n < 1 << 24 else [].pop()"), **REDUCED),
    ),
    "judge.sizes.reduced_times:ReducedTimes.after_exit": (
        "size_dependent",
        program(ROWS, rows("n = n if n < 1 << 24 else n // 2"), **REDUCED),
    ),
    "tamper.hack_flags:read_notes": ("a runner cannot note only_moves", value(lambda: read_notes({"only_moves": "x"}))),
}
