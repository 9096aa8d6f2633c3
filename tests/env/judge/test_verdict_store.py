# SPDX-License-Identifier: Apache-2.0
"""Verdicts on disk: what is asked again, what never is kept, and that a folder can do no harm."""

from dataclasses import replace

import pytest

from tests.env.programs import HONEST, REFERENCE, TASK
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Task
from verl_kernel.env.judge.verdict_store import VerdictStore
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import ConfigError

REQUEST = EvalRequest(TASK, "source", "name")
RESULT = EvalResult(task_id="fused", status=EvalStatus.INCORRECT, correctness=False, stage_seconds={"load": 1.0})
OPTIONS = GymOptions(device="cpu", correctness_trials=2)


def store(folder, **changes):
    return VerdictStore(str(folder / "verdicts"), replace(OPTIONS, **changes))


def test_the_same_answer_has_its_verdict_and_no_seconds(tmp_path):
    kept = store(tmp_path)
    assert kept.load(REQUEST, False) is None
    kept.save(REQUEST, False, RESULT)
    found = store(tmp_path, num_judges=4, queue_size=8).load(replace(REQUEST, kernel="other", step=7), False)
    assert found == RESULT.model_copy(update={"stage_seconds": {}, "kernel": "other"})


@pytest.mark.parametrize(
    "asked",
    [
        {"request": replace(REQUEST, source="source ")},
        {"request": replace(REQUEST, task=Task(REFERENCE + "\n", task_id="fused"))},
        {"request": replace(REQUEST, validate=True)},
        {"is_compiled": True},
        {"options": {"memory_checks": "refuse"}},
        {"options": {"gpu_profile": "a100"}},
        {"options": {"compile_for": ["gfx942", "sm_90"]}},
    ],
)
def test_what_could_change_the_verdict_is_part_of_the_key(tmp_path, asked):
    store(tmp_path).save(REQUEST, False, RESULT)
    other = store(tmp_path, **asked.get("options", {}))
    assert other.load(asked.get("request", REQUEST), asked.get("is_compiled", False)) is None


@pytest.mark.parametrize("status", [EvalStatus.TIMEOUT, EvalStatus.CRASH, EvalStatus.OOM, EvalStatus.INFRA_ERROR])
def test_what_a_busy_machine_may_have_caused_is_not_kept(tmp_path, status):
    kept = store(tmp_path)
    kept.save(REQUEST, False, RESULT.model_copy(update={"status": status}))
    assert kept.load(REQUEST, False) is None


def test_a_damaged_entry_is_absent_and_written_again(tmp_path, caplog):
    kept = store(tmp_path)
    kept.save(REQUEST, False, RESULT)
    (path,) = (tmp_path / "verdicts").rglob("*.json")
    path.write_text(path.read_text()[:40])
    assert kept.load(REQUEST, False) is None
    assert "is damaged" in caplog.text
    kept.save(REQUEST, False, RESULT)
    assert kept.load(REQUEST, False) is not None


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="kernelgym.verdict_cache is .* name another folder"):
        VerdictStore(str(tmp_path / "file"), OPTIONS)


@pytest.mark.processes
def test_a_judge_asks_the_folder_first(tmp_path, judge_with):
    folder = str(tmp_path / "verdicts")
    first = judge_with(verdict_cache=folder).evaluate(TASK, HONEST)
    assert first.status is EvalStatus.OK
    assert first.stage_seconds
    second = judge_with(verdict_cache=folder).evaluate(TASK, HONEST)
    assert second == first.model_copy(update={"stage_seconds": {}})
