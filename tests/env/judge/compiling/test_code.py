# SPDX-License-Identifier: Apache-2.0
"""Native code of kernels is made once, apart from all programs, in a time of its own, where nothing is executed."""

import os
import signal
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest

from tests.env.judge.compiling.test_process import UNIT, Pretended
from tests.env.judge.test_native_trials import COLUMNS, CUMSUM
from tests.env.programs import program
from verl_kernel.env import EvalStatus, GymOptions
from verl_kernel.env.compilation.description import Description, Function, LaunchDescription, Unit, function_texts
from verl_kernel.env.compilation.outcome import UNKNOWN, Refusal
from verl_kernel.env.compilation.targets import COMPILE_S
from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge import execution_client
from verl_kernel.env.judge.compiling import code as module
from verl_kernel.env.judge.compiling.code import CandidateCode, CodeCache, CodeService, CodeStore, CodeTime, LaunchCode
from verl_kernel.env.judge.compiling.process import CompilingProcess, Stopping
from verl_kernel.env.judge.processes.own_time import backstop_s
from verl_kernel.env.judge.processes.runner import RunnerDied
from verl_kernel.errors import InfraError

KERNEL = """
@triton.jit
def copying(x, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place))
"""
SOURCE = f"import triton\n{KERNEL}\nclass ModelNew:\n    pass\n"
OTHER = f"import math\nimport triton\n\n\n{KERNEL}\nclass ModelNew:\n    def forward(self):\n        return 1\n"
NESTED = f"def make():\n{textwrap.indent(KERNEL, '    ')}\n    return copying\n"


@pytest.fixture
def store(judge_processes) -> CodeStore:
    return CodeStore(GymOptions(device="cpu"), judge_processes.compiling)


def launch(source: str, block: int = 32, line: int = 0, **options: object) -> Unit:
    if not line:
        line = next(number for name, number in function_texts(source) if name == "copying")
    uses = {"tl": {"module": "triton.language"}}
    function = Function("copying", line, False, {"BLOCK": "tl.constexpr"}, {}, {}, uses)
    tensor = {"tensor": {"dtype": "float32", "aligned": True}}
    made = LaunchDescription(0, [tensor, tensor], {"BLOCK": block}, dict(options))
    return Description([function], [made]).unit(made)


def asked(store: CodeStore, source: str, unit: Unit, left_out=None, **more: str) -> LaunchCode | Refusal:
    return store.code(unit, function_texts(source), left_out, stopping=Stopping(), code_time=CodeTime(60.0), **more)


def code(store: CodeStore, source: str, unit: Unit, left_out=None, **more: str) -> LaunchCode:
    found = asked(store, source, unit, left_out, **more)
    assert isinstance(found, LaunchCode), found
    return found


@pytest.mark.processes
def test_code_is_made_once_wherever_a_kernel_stands(store):
    first = code(store, SOURCE, launch(SOURCE))
    assert store.forked == 2
    assert first.starts == [1]
    assert code(store, SOURCE, launch(SOURCE)) == code(store, OTHER, launch(OTHER)) == first
    assert store.forked == 2
    assert code(store, NESTED, launch(NESTED)).starts == [2], "within a function"


@pytest.mark.processes
def test_what_differs_is_made_apart(store):
    first = code(store, SOURCE, launch(SOURCE))
    other = code(store, SOURCE, launch(SOURCE, block=64))
    without = code(store, SOURCE, launch(SOURCE), left_out=[*range(999)])
    assert len({first.native, other.native, without.native}) == 3
    assert store.forked == 5, "PTX of two launches, code of them, and code without some stores"


@pytest.mark.processes
def test_a_namespace_has_code_of_its_own(store):
    made = []
    for namespace, forked in (("one", 2), ("two", 4), ("one", 4)):
        made.append(code(store, SOURCE, launch(SOURCE), namespace=namespace))
        assert store.forked == forked
    assert made[0] == made[1] == made[2]


@pytest.mark.processes
def test_equal_code_of_two_configurations_is_made_once(store):
    one, other = (code(store, SOURCE, launch(SOURCE, num_stages=stages)) for stages in (1, 3))
    assert one.name == other.name
    assert store.forked == 3


@pytest.mark.processes
@pytest.mark.parametrize(
    ("source", "options", "kind"),
    [(SOURCE.replace("(x + place)", "(x + places)"), {}, "NameError"), (SOURCE, {"num_ctas": 2}, UNKNOWN)],
)
def test_refusals_are_remembered(store, source, options, kind):
    for _ in range(2):
        found = asked(store, source, launch(source, **options))
        assert isinstance(found, Refusal), found
        assert found.kind == kind, found
    assert store.forked == 1
    if not options:
        assert found.offset == 2


@pytest.mark.processes
def test_what_does_not_fit_is_forgotten(judge_processes, monkeypatch):
    monkeypatch.setattr(module, "_KEPT_BYTES", 1)
    cache = CodeCache()
    store = CodeStore(GymOptions(device="cpu"), judge_processes.compiling, cache)
    for block in (32, 64, 32):
        code(store, SOURCE, launch(SOURCE, block))
    assert store.forked == 6
    assert len(cache.natives) == len(cache.translations) == 1


@pytest.mark.processes
def test_a_killed_process_is_an_infra_error(judge_processes):
    def fork(*args):
        process = judge_processes.compiling.fork(*args)
        os.kill(process.pid, signal.SIGKILL)
        return process

    cache = CodeCache()
    store = CodeStore(GymOptions(device="cpu"), SimpleNamespace(fork=fork), cache)
    with pytest.raises(InfraError):
        code(store, SOURCE, launch(SOURCE))
    assert len(cache.translations) == 0


def test_to_be_killed_at_work_is_no_statement_about_a_kernel():
    process = CompilingProcess(Pretended(RunnerDied(-signal.SIGKILL)), may_be_killed=False)
    with pytest.raises(InfraError, match="killed from outside"):
        process.asked({"translate": UNIT.to_json()}, lambda reply: reply, UNIT)


@pytest.mark.parametrize(
    "answer",
    [
        {"ptx": -1, "warps": 4, "shared": 0, "signature": {}},
        {"ptx": module.MOST_BYTES + 1, "warps": 4, "shared": 0, "signature": {}},
        {"ptx": 4, "warps": 0, "shared": 0, "signature": {}},
        {"ptx": 4, "warps": 4, "shared": 1 << 40, "signature": {}},
        {"ptx": 4, "warps": 4, "shared": 0, "signature": []},
        {"refused": {"kind": "x"}},
        {},
        7,
    ],
)
def test_an_impossible_answer_is_refused_and_not_kept(answer):
    process = CompilingProcess(Pretended(answer), may_be_killed=False)
    memory = SharedMemory.sparse(module.MOST_BYTES)
    found, is_certain = process.asked({}, lambda reply: module._translation(reply, memory), UNIT)
    memory.close()
    assert isinstance(found, Refusal)
    assert not is_certain


class Asking:
    """Plays an executing process."""

    def __init__(self, store: CodeStore, source: str) -> None:
        ours, theirs = channels.pair()
        self.service, self._channel = CodeService(CandidateCode(store), ours, source), Channel(theirs)

    def ask(self, request: object) -> tuple[dict[str, object], bytes]:
        self._channel.send(request)
        told = self._channel.recv(60)
        return told, self._channel.recv_bytes(told.get("code", 0))

    def close(self) -> None:
        self.service.end()
        self._channel.close()


@pytest.fixture
def asking(store) -> Iterator[Asking]:
    with closing(Asking(store, SOURCE)) as asking:
        yield asking


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"unit": None, "left_out": None},
        {"unit": {"launch": {}, "functions": []}, "left_out": None},
        {"unit": launch(SOURCE, line=99).to_json(), "left_out": None},
        {"unit": launch(SOURCE).to_json(), "left_out": ["stores"]},
        {"unit": launch(SOURCE).to_json(), "left_out": {}},
    ],
)
def test_rubbish_is_refused(asking, store, request_):
    told, _ = asking.ask(request_)
    assert told.keys() == {"refused"}
    assert store.forked == 0
    assert asking.service.failure is None


@pytest.mark.processes
def test_nothing_that_an_executing_process_says_reaches_another(store, asking):
    request = {"unit": launch(SOURCE).to_json(), "left_out": None}
    forged = {"code": 4, "made": 4, "native": "evil", "name": "x", "signature": {"x": "*fp64"}}
    told, native = asking.ask({**request, **forged})
    with closing(Asking(store, OTHER)) as other:
        assert other.ask({"unit": launch(OTHER).to_json(), "left_out": None}) == (told, native)
    apart = code(CodeStore(GymOptions(device="cpu"), store._zygote), SOURCE, launch(SOURCE))
    assert (apart.native, apart.name) == (native, told["name"])


@pytest.mark.processes
def test_a_service_ends_while_its_kernel_is_compiled(store, asking):
    asking._channel.send({"unit": launch(SOURCE).to_json(), "left_out": None})
    asking.service.end()
    assert asking.service.failure is None
    assert not asking.service._thread.is_alive()


OPTIONS = GymOptions(device="cpu", correctness_trials=1, run_timeout_s=2.0, memory_mb=1024, static_check="off")
STEPS = """        value = tl.load(x + row * width + place)
        for step in tl.static_range(STEPS):
            value = tl.where(value == step + 1000, tl.sin(value + step), value)
        total += value
"""
LONG = COLUMNS.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, STEPS: tl.constexpr").format(value="total")
LONG = LONG.replace("        total += tl.load(x + row * width + place)\n", STEPS)
CONFIGS = '@triton.autotune([triton.Config({"STEPS": steps}, num_warps=1) for steps in (30, 31, 32, 33)], key=["rows"])'
CALL = "columns[(2,)](x, out, x.shape[0], x.shape[1], BLOCK=32{steps})"
TUNED = program(f"{CONFIGS}\n{LONG.strip()}", f"out = torch.empty_like(x)\n{CALL.format(steps='')}\nreturn out")


def endless(launch: str) -> str:
    """A candidate that launches one kernel after another, each of which must be compiled."""
    return program(LONG, f"out = torch.empty_like(x)\nfor steps in range(1, 5000):\n    {launch}\nreturn out")


PLAIN = CALL.format(steps=", STEPS=steps")
CAUGHT = f"try:\n        {PLAIN}\n    except Exception:\n        pass"


@pytest.mark.exhaustive
@pytest.mark.processes
def test_compiling_many_configurations_costs_no_time(judge):
    result = judge.evaluate(CUMSUM, TUNED)
    assert result.status is EvalStatus.OK, result.error
    assert sum(result.stage_seconds.values()) > 2 * OPTIONS.run_timeout_s, "this proves nothing"


@pytest.mark.processes
def test_an_endless_supply_of_kernels_ends_in_a_sentence(judge, monkeypatch):
    monkeypatch.setattr(execution_client, "CODE_S", 1.0)
    begun = time.monotonic()
    result = judge.evaluate(CUMSUM, endless(PLAIN))
    assert (result.status, result.error.type) == (EvalStatus.COMPILE_ERROR, "CompileTimeout"), result.error
    assert "in columns" in result.error.message
    assert "launch fewer kernels" in result.error.message
    assert time.monotonic() - begun < backstop_s(1.0)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_asking_beyond_the_budget_costs_the_candidates_time(judge, monkeypatch):
    monkeypatch.setattr(execution_client, "CODE_S", 1.0)
    assert judge.evaluate(CUMSUM, endless(CAUGHT)).status in (EvalStatus.TIMEOUT, EvalStatus.COMPILE_ERROR)


def test_time_waits_only_while_code_is_made():
    spent = CodeTime(60.0)
    with spent.making():
        time.sleep(0.2)
        before = spent.waited_ns()
        assert before >= 0.2e9
    after = spent.waited_ns()
    time.sleep(0.1)
    assert before <= after == spent.waited_ns()


def test_a_process_has_what_is_left_of_the_budget():
    spent = CodeTime(COMPILE_S + 1)
    assert spent.left_s == COMPILE_S
    spent.charge(2.0)
    assert COMPILE_S - 2 < spent.left_s <= COMPILE_S - 1
    spent.charge(COMPILE_S)
    assert spent.left_s == 0.0


def test_a_machine_that_is_far_too_busy_ends_it_too(monkeypatch):
    monkeypatch.setattr("verl_kernel.env.judge.compiling.code.WALL_FACTOR", 0.1)
    spent = CodeTime(1.0)
    with spent.making():
        time.sleep(0.15)
    assert spent.left_s == 0.0


def test_one_kernels_sentence_is_another_than_that_of_all():
    spent = CodeTime(60.0)
    one, all_ = spent.late(COMPILE_S).message, spent.late(1.0).message
    assert "30 s" in one
    assert "fewer kernels" not in one
    assert "60 s" in all_
    assert "launch fewer kernels" in all_


@pytest.mark.parametrize("end", [TimeoutError("late"), {"compiled": 1}])
def test_what_ends_badly_is_charged_as_well(end):
    process = CompilingProcess(Pretended(end), granted_s=5.0)
    process.asked({"translate": UNIT.to_json()}, lambda reply: reply, UNIT)
    assert process.used_s == Pretended.used_s


class EndingWhileLookedAt(CodeTime):
    """Code that has been made once somebody has read a first one of the two numbers."""

    end = None

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name in ("_begun_ns", "_waited_ns") and (end := super().__getattribute__("end")) is not None:
            self.end = None
            end()
        return value


def test_a_look_while_making_ends_misses_nothing():
    """A runner would be over its budget at once."""
    spent = EndingWhileLookedAt(60.0)
    with ExitStack() as made:
        made.enter_context(spent.making())
        time.sleep(0.2)
        spent.end = made.close
        assert spent.waited_ns() >= 0.2e9
