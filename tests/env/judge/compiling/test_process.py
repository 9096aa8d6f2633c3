# SPDX-License-Identifier: Apache-2.0
"""Every way in which a compiling process can end is a statement about the kernel, unless the machine failed it."""

import signal
from contextlib import closing

import pytest

from tests.env.gyms import pretend
from verl_kernel.env.compilation.description import Description, Function, LaunchDescription
from verl_kernel.env.compilation.outcome import Outcome, Refusal, Resources
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.ipc.channel import ProtocolError
from verl_kernel.env.judge.compiling import process as module
from verl_kernel.env.judge.compiling.process import CompilingProcess
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied
from verl_kernel.env.judge.processes.zygote import CompileZygote
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.limits import evaluation_limit_s
from verl_kernel.errors import EnvironmentNotReady, InfraError

FUNCTIONS = [Function(name, line, False, {}, {}, {}, {}) for name, line in (("k", 20), ("helper", 5))]
LAUNCH = LaunchDescription(0, [{"function": 1}], {}, {})
UNIT = Description(FUNCTIONS, [LAUNCH]).unit(LAUNCH)
USED = Outcome(Resources(4, 0, 16, 0), 0.5)


class Pretended:
    """A runner's process that answers, or ends, as it is told."""

    scratch, was_killed, grown_mb, used_s = "/tmp/x", False, 0, 1.0
    options = GymOptions()

    def __init__(self, end: object, printed: str = "") -> None:
        self._answers, self._printed, self.output = [{"isolation": []}, end], printed, bytearray()

    def ask(self, request: object, budget_s: float) -> object:
        answer = self._answers.pop(0)
        if not self._answers:
            self.output += self._printed.encode()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> int:
        return 0


def outcome(end: object, printed: str = "") -> tuple[Outcome, bool]:
    return CompilingProcess(Pretended(end, printed)).outcome(UNIT)


def refused(message: str) -> dict[str, object]:
    return {"compiled": Outcome(Refusal("RuntimeError", message, 0), 0.5).to_json()}


def test_an_answer_is_certain():
    assert outcome({"compiled": USED.to_json()}) == (USED, True)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (TimeoutError("processor time"), "CompileTimeout"),
        (GrantExceeded("MemoryExceeded", "the process used more"), "CompileMemory"),
        (RunnerDied(-signal.SIGABRT), "CompilerCrash"),
        (RunnerDied(-signal.SIGKILL), "CompilerCrash"),
        (RunnerDied(1), "CompilerCrash"),
        (ProtocolError("no JSON"), "CompilerCrash"),
        ({}, "CompilerCrash"),
        ({"compiled": {"used": {"warps": 1, "speedup": 7}, "seconds": 1.0}}, "CompilerCrash"),
        ({"compiled": 7}, "CompilerCrash"),
    ],
)
def test_any_other_end_refuses_this_launch_only(end, kind):
    found, is_certain = outcome(end)
    assert found.result.kind == kind
    assert found.result.function == 0
    assert not is_certain


@pytest.mark.parametrize(
    ("line", "place"), [("/tmp/x/kernel.py:7:3", ("helper", 2)), ('loc("/tmp/x/kernel.py":21:9)', ("k", 1))]
)
@pytest.mark.parametrize("end", [refused("PassManager::run failed"), RunnerDied(-signal.SIGABRT)])
def test_the_complaint_of_a_pass_is_told_with_its_line(end, line, place):
    found, _ = outcome(end, f"noise\n{line}: error: operand has no layout\nmore noise\n")
    name = UNIT.functions[found.result.function].name
    assert found.result.message == "operand has no layout"
    assert (name, found.result.offset) == place


@pytest.mark.parametrize(("first", "told"), [("", "the compiler's pass TritonPass failed"), ("no layout", "no layout")])
def test_a_pass_that_gives_no_reason_is_named(first, told):
    place = "/tmp/x/kernel.py:7:3"
    printed = f"{place}: error: {first}\n" if first else ""
    printed += f"{place}: error: Failures have been detected while processing an MLIR pass pipeline\n"
    printed += f"{place}: note: Pipeline failed while executing [`TritonPass` on 'tt.func' operation: @k]: reproducer\n"
    assert outcome(refused("PassManager::run failed"), printed)[0].result.message == told


def test_a_message_holds_no_path_of_this_run():
    assert outcome(refused("see /tmp/x/kernel.py"))[0].result.message == "see kernel.py"
    assert "/tmp/x" not in outcome(RunnerDied(-6), "LLVM ERROR: in /tmp/x/kernel.ptx")[0].result.message


def test_a_machine_without_memory_is_not_the_kernels_fault(monkeypatch):
    counts = iter((0, 1))
    monkeypatch.setattr(module, "oom_kills", lambda: next(counts))
    with pytest.raises(InfraError, match="out of memory"):
        outcome(RunnerDied(-signal.SIGKILL))


def test_a_process_that_does_not_start_is_the_gyms_failure():
    with pytest.raises(InfraError, match="did not start"):
        pretended = Pretended(None)
        pretended._answers = [RunnerDied(1)]
        CompilingProcess(pretended)


@pytest.mark.processes
def test_a_wheel_without_a_working_assembler_is_one_sentence(monkeypatch, tmp_path):
    assembler = tmp_path / "ptxas"
    assembler.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\ntest \"$1\" = --version\n")
    assembler.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(assembler))
    zygote = CompileZygote(["sm_90"])
    with pytest.raises(EnvironmentNotReady, match=r"^kernelgym.compile_for names sm_90, for which .* ptxas") as caught:
        zygote.start()
    assert "\n" not in str(caught.value)
    assert "name others (sm_80, " in str(caught.value)
    assert zygote.pid is None


@pytest.mark.processes
def test_a_wheel_without_amds_back_end_is_one_sentence(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, "from triton.backends import backends\n\nbackends.pop('amd')\n")
    with pytest.raises(
        EnvironmentNotReady, match=r"^kernelgym.compile_for names gfx942, for which .* back end"
    ) as caught:
        CompileZygote(["sm_90", "gfx942"]).start()
    assert str(caught.value).endswith(
        "or name others (sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, gfx942, gfx950, gfx1100) or off"
    )
    assert "\n" not in str(caught.value)


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.slow
def test_the_installed_triton_compiles_for_every_target():
    with closing(CompileZygote(list(TARGETS))) as zygote:
        zygote.start()


def test_the_options_have_a_compile_limit():
    compiling = GymOptions(device="cpu", compile_for="sm_90")
    assert evaluation_limit_s(compiling) > evaluation_limit_s(GymOptions(device="cpu")) + 30
    both = GymOptions(device="cpu", compile_for=("sm_90", "gfx942"))
    assert evaluation_limit_s(both) > evaluation_limit_s(compiling) + 30


@pytest.mark.parametrize(
    ("options", "apart"),
    [
        ({}, False),
        ({"compile_for": "sm_90"}, False),
        ({"compile": "sample"}, False),
        ({"compile_for": "sm_90", "compile": "sample"}, True),
        ({"compile_for": ["sm_90", "gfx942"], "compile": "sample"}, True),
        ({"compile_for": "sm_90", "compile": "off"}, True),
    ],
)
def test_validation_and_training_share_no_compile_verdict(options, apart):
    assert GymOptions(device="cpu", **options).judges_validation_apart is apart
