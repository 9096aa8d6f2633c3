# SPDX-License-Identifier: Apache-2.0
"""The samples of a validation, scored by us, have the figures that verl logs of them."""

from pathlib import Path

import pytest
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from tests.rollout.chat_tokenizers import tokenizer as train
from tests.rollout.scripted_loop import ANSWER, LOST, OK, REFERENCE, ROW, WRONG, played
from tests.tiers import thinned
from verl_kernel.bench.scores import attempt
from verl_kernel.bench.validation import read_validation
from verl_kernel.env import Task
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Asked
from verl_kernel.figures.scoring import score

TURNS, WINDOW = 3, 1
SAMPLES = {
    ("t1", 0): (None, 2.0, 0.5),
    ("t1", 1): (1.2, None, None),
    ("t2", 0): (None, None, None),
    ("t2", 1): (0.9, 1.3, 1.5),
    ("t3", 0): (1.5, "lost"),
    ("t3", 1): (None, "lost"),
}
"""Speedups by turn; None is a wrong answer."""


def verdict(task: str, outcome: object) -> object:
    result = LOST if outcome == "lost" else WRONG if outcome is None else OK.model_copy(update={"speedup": outcome})
    return result.model_copy(update={"task_id": task})


async def validated(monkeypatch, folder: Path, **options: object) -> dict[str, dict[str, float]]:
    """Play all samples, write verl's file and return verl's figures."""
    trained = train([ANSWER, REFERENCE] * 4)
    columns, sessions, rows = [], [], []
    for (task, sample), outcomes in SAMPLES.items():
        results = [verdict(task, outcome) for outcome in outcomes]
        asked = {"response_length": 3000, "prompt_length": 3000, "max_turns": TURNS, "val_only": True, **options}
        row = {**ROW, "extra_info": {"task_id": task}, "kernel_validation": True}
        output, _, _ = await played(monkeypatch, trained, [ANSWER] * TURNS, results, row=row, **asked)
        outputs = output if isinstance(output, list) else [output]
        info = outputs[-1].extra_fields["reward_extra_info"]
        columns.append(info | {"reward": outputs[-1].as_dict()["rm_scores"].sum().item()})
        sessions.append(f"prompt of {task}")
        rows += [(f"prompt of {task}_{sample}_{i}", trained.decode(one.response_ids), len(columns) - 1)
                 for i, one in enumerate(outputs)]  # fmt: skip
    infos = {key: [info[key] for info in columns] for key in columns[0]}
    expected = dict.fromkeys((("held_out", session) for session in sessions), 2)
    dumped = {key: [values[place] for _, _, place in rows] for key, values in infos.items()}
    PPOTrainer._write_generations(
        inputs=["?"] * len(rows), outputs=[text for _, text, _ in rows], gts=[REFERENCE] * len(rows),
        scores=[columns[place]["reward"] for _, _, place in rows],
        reward_extra_infos_dict=dumped | {"uid": [key for key, _, _ in rows]}, dump_path=folder, global_steps=0,
    )  # fmt: skip
    found = process_validation_metrics(["held_out"] * len(columns), sessions, infos, expected_acc_counts=expected)
    return {name: values["mean@2"] for name, values in found["held_out"].items()}


@pytest.mark.parametrize("context", thinned(["concat", "last", "best_window", "top_w"], 4))
async def test_our_scores_of_a_validation_are_verls_figures(monkeypatch, tmp_path, context):
    logged = await validated(monkeypatch, tmp_path, context=context, window=WINDOW)
    turns = read_validation(tmp_path / "0.jsonl")
    attempts = [attempt(turn) for turn in turns]
    found = score(attempts, Asked.of(attempts))
    assert logged["acc"] == pytest.approx(found.verl_acc.value) == pytest.approx(2 / 6)
    assert logged["unjudged"] == pytest.approx(found.lost / 6) == 2 / 6
    assert logged["reward"] == pytest.approx(sum(turn.reward for turn in turns) / 6)
    assert logged["tokens"] == pytest.approx(found.overall.tokens)
    for k in range(1, TURNS + 1):
        views = found.by_turn[k - 1]
        last, best = views.last_turn, views.best_of_history
        names = ("acc", "fast@1.2", "best_acc", "best_fast@1.2") if k < TURNS else (
            "acc", "last_turn_fast@1.2", "best_turn_acc", "best_turn_fast@1.2")  # fmt: skip
        keys = [f"turn_{k}_{name}" if k < TURNS else name for name in names]
        figures = [(view, name) for view in (last, best) for name in ("correct", "fast@1.2")]
        for key, (view, name) in zip(keys, figures, strict=True):
            # verl counts a lost answer as wrong, ours leaves it out.
            assert logged[key] == pytest.approx(view.values[name].value * view.answers / 6), key


async def test_every_turn_is_read_again_with_what_its_prompt_showed(monkeypatch, tmp_path):
    await validated(monkeypatch, tmp_path, context="top_w", window=WINDOW)
    turns = {(turn.task_id, turn.sample, turn.turn): turn for turn in read_validation(tmp_path / "0.jsonl")}
    assert len(turns) == sum(map(len, SAMPLES.values()))
    assert [turns["t2", 1, turn].shown for turn in (1, 2, 3)] == [(), (1,), (2,)]
    assert [turns["t1", 1, turn].shown for turn in (1, 2, 3)] == [(), (1,), (1,)]
    assert {turn.task_hash for turn in turns.values()} == {Task(REFERENCE).text_hash}
    assert all(turn.completion.startswith(ANSWER) and turn.code == "x = 1\n" for turn in turns.values())
    assert all(turn.prompt_tokens > 0 and turn.completion_tokens > 0 for turn in turns.values())


async def test_a_file_of_something_else_is_refused_by_line(monkeypatch, tmp_path):
    await validated(monkeypatch, tmp_path)
    path = tmp_path / "0.jsonl"
    assert {turn.completion for turn in read_validation(path)} == {None}
    good = path.read_text()
    for bad in ('{"uid": "a_0_0"}\n', "[]\n", '{"uid": "a", "output": "", "kernel_turns": "[]", "task_hash": ""}\n'):
        path.write_text(good + bad)
        with pytest.raises(DataError, match=r"0.jsonl, line 7 is no row of a validation.*validation_data_dir"):
            read_validation(path)
    with pytest.raises(DataError, match=r"missing.jsonl does not exist: .*validation_data_dir"):
        read_validation(tmp_path / "missing.jsonl")
