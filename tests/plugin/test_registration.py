# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from verl_kernel import plugin
from verl_kernel.advantage import ESTIMATORS
from verl_kernel.loss import LOSSES
from verl_kernel.plugin import registration

LOADED = """
import verl
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
import hydra.utils, verl_kernel.advantage
print({get_adv_estimator_fn(name) is fn for name, fn in verl_kernel.advantage.ESTIMATORS.items()})
print(get_reward_manager_cls("kernelgym").__module__)
print(hydra.utils.get_class(_agent_loop_registry["kernel_agent"]["_target_"]).__name__)
"""
FOREIGN = """
import logging, os
os.environ["VERL_USE_EXTERNAL_PLUGINS"] = "none"
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est
@register_adv_est("trloo")
def someone_elses(): ...
import verl_kernel.plugin
print(ADV_ESTIMATOR_REGISTRY["trloo"] is someone_elses)
import verl.experimental.reward_loop.reward_manager, verl.experimental.agent_loop.agent_loop
print(verl_kernel.plugin.missing())
"""
SWALLOWED = """
import sys
sys.modules["verl_kernel.reward.manager"] = None  # its import fails
import verl
import verl.experimental.reward_loop.reward_manager
print("verl imported")
"""
FORKING = """
import json, os, sys
import hydra, ray, tensordict, torch, transformers  # what all probes import before verl: two thirds of their time

for line in sys.stdin:
    probe = json.loads(line)
    if not (child := os.fork()):
        for fd, path in zip((1, 2), probe["streams"]):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), fd)
        os.environ.update(probe["environment"])
        exec(probe["code"], {"__name__": "__main__"})
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Probe(NamedTuple):
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def fresh() -> Iterator[subprocess.Popen[str]]:
    """A Python that has imported what verl needs and nothing of verl or ours, and forks for each probe."""
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def run(fresh: subprocess.Popen[str], tmp_path: Path) -> Callable[..., Probe]:
    def probe(code: str, **environment: str) -> Probe:
        streams = [tmp_path / "stdout", tmp_path / "stderr"]
        message = {"code": code, "environment": environment, "streams": [str(path) for path in streams]}
        fresh.stdin.write(json.dumps(message) + "\n")
        fresh.stdin.flush()
        status = fresh.stdout.readline()
        said = Probe(*(path.read_text() for path in streams))
        assert status == "0\n", said.stderr[-2000:]
        return said

    return probe


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("", ("verl", "verl_kernel")),  # the probes begin without verl
        ("import verl", ("verl.experimental", "verl.trainer", "verl.workers")),  # it imports none of its registries
    ],
)
def test_what_is_not_imported(statement, names, run):
    code = f"import sys\n{statement}\nprint([name for name in sys.modules if name.startswith({names})])"
    assert run(code, VERL_PLATFORM="cpu").stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_importing_verl_registers_our_names(run):
    said = run(LOADED, VERL_PLATFORM="cpu").stdout.splitlines()[-3:]
    assert said == ["{True}", "verl_kernel.reward.manager", "KernelAgentLoop"]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("first", ["verl_kernel.reward.manager", "verl_kernel.rollout.agent_loop"])
def test_any_import_order_registers_everything(first, run):
    done = run(f"import {first}, verl_kernel.plugin\nprint(verl_kernel.plugin.missing())")
    assert done.stdout.splitlines()[-1] == "{}"
    assert "could not register" not in done.stderr


@pytest.mark.slow
def test_a_name_that_verl_holds_is_told_with_owners(run):
    done = run(FOREIGN)
    untouched, missing = done.stdout.splitlines()[-2:]
    assert untouched == "True"
    assert missing == "{('advantage estimator', 'trloo'): '__main__.someone_elses'}"
    (line,) = (line for line in done.stderr.splitlines() if "verl already has" in line)
    assert "__main__.someone_elses" in line
    assert "verl_kernel.advantage.baselines.trloo" in line


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_plugin_that_fails_is_loud_although_verl_goes_on(run):
    done = run(SWALLOWED)
    assert "verl imported" in done.stdout
    for words in ("ERROR", "verl_kernel could not register with verl", "Traceback"):
        assert words in done.stderr


def test_registering_twice_changes_nothing():
    plugin.register()
    assert plugin.missing() == {}
    assert {name for _, name in plugin.expected()} == {*ESTIMATORS, *LOSSES, "kernelgym", "kernel_agent"}
    assert set(plugin.states().values()) == {"own"}


def test_missing_names_the_holder(monkeypatch):
    registry = registration._registry("agent loop")
    monkeypatch.setitem(registry, "kernel_agent", {"_target_": "other.Loop"})
    assert plugin.missing() == {("agent loop", "kernel_agent"): "other.Loop"}
    monkeypatch.delitem(registry, "kernel_agent")
    assert plugin.missing() == {("agent loop", "kernel_agent"): None}


def someone_elses() -> None: ...


@pytest.mark.parametrize(
    ("kind", "held", "other"),
    [
        ("advantage estimator", "topr_signed", "asymre_shift"),
        ("policy loss", "turn_corrected", None),
        ("reward manager", "kernelgym", None),
        ("agent loop", "kernel_agent", None),
    ],
)
def test_a_held_name_is_left_to_its_owner(monkeypatch, caplog, kind, held, other):
    registry = registration._registry(kind)
    entry = {"_target_": "other.Loop"} if kind == "agent loop" else someone_elses
    monkeypatch.setitem(registry, held, entry)
    if other is not None:
        monkeypatch.delitem(registry, other)
    plugin.register()
    assert registry[held] is entry
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert plugin.expected()[kind, held] in record.getMessage()
    assert plugin.states()[kind, held] in record.getMessage().replace("registered by", "held by")
    assert [key for key, state in plugin.states().items() if state != "own"] == [(kind, held)]


def test_a_verl_without_resumable_loops_gets_none_of_ours(monkeypatch, caplog):
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    from verl_kernel.verl_names import append_messages

    monkeypatch.delattr(AgentLoopBase, append_messages(AgentLoopBase).__name__)
    monkeypatch.delitem(registration._registry("agent loop"), "kernel_agent")
    plugin.register()
    assert plugin.missing() == {("agent loop", "kernel_agent"): None}
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "install the verl" in str(record.exc_info[1])


def test_a_registry_that_cannot_be_filled_costs_no_other(monkeypatch, caplog):
    monkeypatch.setitem(registration._REGISTER, "advantage estimator", lambda: 1 / 0)
    monkeypatch.delitem(registration._registry("agent loop"), "kernel_agent")
    plugin.register()
    assert plugin.missing() == {}
    assert "ZeroDivisionError" in caplog.text
