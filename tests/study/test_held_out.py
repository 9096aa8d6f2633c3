# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from recipes.cpu_study.held_out import FIGURES, held_out, is_figure
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import DataError
from verl_kernel.reward.record import TurnRecord, dump_turns

WRONG = EvalResult(task_id="t", status=EvalStatus.INCORRECT, correctness=False)
DECOY = EvalResult(task_id="t", status=EvalStatus.DECOY, correctness=True, decoy_kernel=True, speedup=2.5)
PAID_DECOY = DECOY.model_copy(update={"status": EvalStatus.OK})


def right(speedup, coverage):
    return EvalResult(
        task_id="t", status=EvalStatus.OK, correctness=True, speedup=speedup, time_coverage=coverage
    )  # fmt: skip


def write(path, trajectories):
    turns = [[TurnRecord(start=0, stop=1, reward=0.0, result=result) for result in own] for own in trajectories]
    path.write_text("".join(json.dumps({"kernel_turns": dump_turns(own), "score": 1.0}) + "\n" for own in turns))
    return path


def test_figures_are_of_the_last_turn(tmp_path):
    trajectories = [(WRONG, right(8.0, 0.5)), (right(1.3, 0.1), right(1.1, 0.1)), (WRONG, DECOY), (WRONG, PAID_DECOY)]
    found = held_out(write(tmp_path / "4.jsonl", trajectories), {})
    assert found == pytest.approx({
        "correct": 0.5, "correct, first turn": 0.25, "fast@1.2": 0.25, "coverage": 0.3,
        "useful speedup": (3.0 + 1.1) / 4, "decoys": 0.5, "novel": 0.0,
    })  # fmt: skip
    assert set(found) == set(FIGURES)


def test_a_split_has_figures_of_its_own(tmp_path):
    other = right(2.0, 1.0).model_copy(update={"task_id": "u"})
    path = write(tmp_path / "4.jsonl", [(WRONG,), (other,), (WRONG.model_copy(update={"task_id": "none"}),)])
    found = held_out(path, {"t": "same", "u": "new_chain"})
    assert {key: value for key, value in found.items() if key.endswith("correct")} == pytest.approx(
        {"correct": 1 / 3, "same/correct": 0.0, "new_chain/correct": 1.0}
    )


def test_right_programs_that_the_cold_start_lacks_are_novel(tmp_path):
    turn = TurnRecord(start=0, stop=1, reward=1.0, result=right(2.0, 1.0), code="x = 1")
    turns = [turn.model_copy(update={"novel": novel, "novel_bytes": True}) for novel in (True, False)]
    lines = [json.dumps({"kernel_turns": dump_turns([one])}) + "\n" for one in turns]
    (tmp_path / "4.jsonl").write_text("".join(lines))
    assert held_out(tmp_path / "4.jsonl", {})["novel"] == 0.5


@pytest.mark.parametrize(
    ("name", "known"),
    [("correct", True), ("new_chain/correct", True), ("newer_chain/correct", False), ("new_chain/", False)],
)
def test_names_of_figures(name, known):
    assert is_figure(name) is known


def test_nothing_right_has_no_coverage(tmp_path):
    assert held_out(write(tmp_path / "4.jsonl", [(WRONG,)]), {})["coverage"] == 0.0


@pytest.mark.parametrize("text", ["", "{}\n", "not json\n", '{"kernel_turns": "[{}]"}\n'])
def test_a_file_that_is_no_validation_is_refused(tmp_path, text):
    (tmp_path / "4.jsonl").write_text(text)
    with pytest.raises(DataError, match="4.jsonl is"):
        held_out(tmp_path / "4.jsonl", {})
