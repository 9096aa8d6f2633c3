# SPDX-License-Identifier: Apache-2.0
"""Suites whose references are judged against themselves, by real judges."""

import json

import pytest

from tests.env.programs import reference
from verl_kernel.bench.self_check import FILE, SelfCheck, as_candidate, summary, write_self_check
from verl_kernel.bench.session import run_self_check
from verl_kernel.bench.suites import load_suite
from verl_kernel.env import GymOptions, Task
from verl_kernel.errors import ConfigError

pytestmark = pytest.mark.processes

_LINEAR = {"members": "self.linear = nn.Linear(width, 8)", "parameters": ", width", "values": "16"}
_PLAIN = reference("torch.relu(self.linear(x))", "torch.randn(4, 16)", **_LINEAR)
RIGHT = _PLAIN.replace("super()", "super(Model, self)")
RANDOM = RIGHT.replace("torch.relu(self.linear(x))", "torch.rand(4, 8)")
BROKEN = RIGHT.replace("torch.relu", "torch.no_such_function")
MISSING = f"import no_such_package\n{RIGHT}"


def test_what_is_wrong_with_a_reference_is_listed(tmp_path):
    (tmp_path / "refs").mkdir()
    for name, text in {"right": RIGHT, "random": RANDOM, "broken": BROKEN, "missing": MISSING}.items():
        (tmp_path / "refs" / f"{name}.py").write_text(text)
    suite = load_suite(str(tmp_path / "refs"))
    gym = GymOptions(device="cpu", correctness_trials=2, memory_checks="refuse", compile_for="sm_90")
    found = run_self_check(suite, gym, 0, tmp_path / "out")
    assert [task.task_id for task in found.tasks if task.passed] == ["right"]
    reasons = {task.task_id: task.reason for task in found.failures}
    assert "no_such_package" in reasons["missing"]
    assert "no_such_function" in reasons["broken"]
    *others, last = summary(found)
    assert (len(others), last) == (3, "refs: 1 of 4 references are right and as fast as themselves")
    written = json.loads((tmp_path / "out" / FILE).read_text())
    assert (written["suite_hash"], len(written["tasks"])) == (suite.hash, 4)


def test_an_entry_class_of_another_name():
    task = Task(RIGHT.replace("Model", "Block"), entry_point="Block")
    assert "class BlockNew(nn.Module)" in as_candidate(task)
    assert "super(BlockNew, self)" in as_candidate(task)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file: name a folder"):
        write_self_check(SelfCheck(suite="s", suite_hash="h", tasks=()), tmp_path / "file")
