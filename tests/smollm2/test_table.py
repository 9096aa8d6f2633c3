# SPDX-License-Identifier: Apache-2.0
"""Answers are kept as a validation gave them, and the table of them is the same each time."""

import json
import lzma
from dataclasses import asdict
from pathlib import Path

import pytest

from recipes.cpu_smollm2 import answers, table
from recipes.cpu_smollm2.answers import in_order
from tests.commands.lines import assert_one_sentence, invoked
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.figures.attempts import Attempt
from verl_kernel.generated_tasks.kinds import SPLITS
from verl_kernel.reward.record import HASH_COLUMN, TURNS_COLUMN, TurnRecord, dump_turns

TASKS = ("one", "two", "three", "four")


def verdict(task: str, is_right: bool) -> EvalResult:
    if is_right:
        return EvalResult(status=EvalStatus.OK, task_id=task, compiled=True, correctness=True, decoy_kernel=False)
    return EvalResult(status=EvalStatus.COMPILE_ERROR, task_id=task, compiled=False)


def write(path: Path, right: set[tuple[str, int]]) -> Path:
    """Write a validation of two answers a task, in the form in which verl writes it."""
    path.parent.mkdir(parents=True)
    lines, facts = [], {"reward": 0.0, "code": "code", "start": 0, "stop": 7, "novel": True, "novel_bytes": True}
    for number, (task, sample) in enumerate((task, sample) for task in TASKS for sample in range(2)):
        turn = TurnRecord(result=verdict(task, (task, sample) in right), **facts)
        row = {"uid": f"{number // 2}_{sample}_0", "output": f"answer {task} {sample}", HASH_COLUMN: "0"}
        lines.append(json.dumps({**row, TURNS_COLUMN: dump_turns([turn])}))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def kept(tmp_path):
    before = write(tmp_path / "run" / "validation" / "0.jsonl", {("one", 0)})
    after = write(tmp_path / "other" / "validation" / "60.jsonl", {("one", 0), ("one", 1), ("two", 0)})
    invoked(tmp_path / "kept", f"before={before}", f"trloo={after}", command=table.app)
    return tmp_path / "kept"


def test_an_answer_is_kept_with_its_text_and_verdict(kept):
    with lzma.open(kept / "before.jsonl.xz", "rt") as file:
        rows = [json.loads(line) for line in file]
    assert [row["answer"] for row in rows] == [f"answer {task} {sample}" for task in TASKS for sample in range(2)]
    assert [row["correct"] for row in rows] == [True, *[False] * 7]
    assert {"commit", "date", "split", "status", "novel"} <= rows[0].keys()


def test_an_arm_may_have_several_validations(tmp_path):
    files = [write(tmp_path / name / "validation" / "0.jsonl", set()) for name in ("run", "other")]
    answers.keep(tmp_path, "before", files)
    with lzma.open(tmp_path / "before.jsonl.xz", "rt") as file:
        assert len(file.readlines()) == 16


def test_the_steps_of_a_training_are_kept_and_shown_as_means(tmp_path):
    trained = write(tmp_path / "trained" / "validation" / "6.jsonl", set())
    asked = write(tmp_path / "asked" / "validation" / "0.jsonl", set())
    metrics = [
        {"step": step, "data": {"training/global_step": step, "kernel/correct_rate": step / 10, "other": 1.0}}
        for step in range(1, 7)
    ]
    (tmp_path / "trained" / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in metrics))
    answers.keep(tmp_path / "kept", "trloo", [trained, asked])
    steps = (tmp_path / "kept" / "trloo.steps.jsonl").read_text().splitlines()
    assert json.loads(steps[0]) == {"step": 1, "kernel/correct_rate": 0.1}
    lines = [line for line in table.table(tmp_path / "kept").splitlines() if line.startswith("| trloo | ")]
    assert [line.split(" | ")[1:4] for line in lines[-2:]] == [["1 to 4", "-", "0.25"], ["5 to 6", "-", "0.55"]]
    assert all(line.endswith("| - | - | - | - |") for line in lines[-2:])


def test_the_table_shows_both_arms_and_their_difference(kept):
    lines = (kept / "table.md").read_text().splitlines()
    assert lines[0] == "| split | tasks | figure | before | trloo | trloo - before |"
    (correct,) = (line.split(" | ") for line in lines if "| 4 | correct |" in line)
    assert correct[3].startswith("0.125 (")
    assert correct[4].startswith("0.375 (")
    assert correct[5].startswith("+0.250 (")


def test_splits_are_in_the_order_of_their_distance():
    answer = asdict(Attempt("task", 0, 1, "ok", correct=True, compiled=True))
    made = [{**answer, "split": split} for split in ("KernelBench level 1", "new_family", "same")]
    lines = table.figures({"before": made}, in_order({row["split"] for row in made}, SPLITS))
    shown = [line.split(" | ")[0] for line in lines if "| correct |" in line]
    assert shown == ["| same", "| new_family", "| KernelBench level 1"]


def test_an_arm_that_was_not_asked_has_no_figure():
    answer = asdict(Attempt("task", 0, 1, "ok", correct=True, compiled=True))
    arms = {arm: [{**answer, "split": split} for split in asked]
            for arm, asked in (("before", ("same", "new_chain")), ("trloo", ("same",)))}  # fmt: skip
    (line,) = (line for line in table.figures(arms, SPLITS) if line.startswith("| new_chain | 1 | correct |"))
    assert line.endswith("| - | - |")


def test_the_table_counts_verdicts(kept):
    text = (kept / "table.md").read_text()
    assert "| verdicts | split | compile_error | ok |" in text
    assert "| trloo | KernelBench level 1 | 5 | 3 |" in text


def test_the_table_is_the_same_when_it_is_made_again(kept):
    before = (kept / "table.md").read_bytes()
    invoked(kept, command=table.app)
    assert (kept / "table.md").read_bytes() == before


def test_the_recipes_table_is_that_of_its_answers():
    folder = Path(table.__file__).parents[2] / "data" / "smollm2"
    assert table.table(folder) == (folder / "table.md").read_text()


def test_a_missing_validation_is_one_sentence(tmp_path):
    for words, said in (
        (["kept"], "kept holds no answers"),
        (["kept", "before"], "before is no NAME=FILE"),
        (["kept", "before=gone/validation/0.jsonl"], "gone/validation/0.jsonl does not exist"),
    ):
        assert_one_sentence(invoked(*words, command=table.app, exit_code=2).output, f"Error: {said}")
