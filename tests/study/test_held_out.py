# SPDX-License-Identifier: Apache-2.0
"""Figures of a validation; the best of n as enumerating all choices gives it, and n as a run has paid for it."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.cpu_study import held_out as figures
from recipes.cpu_study.best_of_n import FIGURES, affordable, best_of_n, read_samples, spent
from recipes.cpu_study.held_out import held_out, is_figure
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import DataError
from verl_kernel.reward.record import TurnRecord, dump_turns

WRONG = EvalResult(task_id="t", status=EvalStatus.INCORRECT, correctness=False)
DECOY = EvalResult(task_id="t", status=EvalStatus.DECOY, correctness=True, decoy_kernel=True, speedup=2.5)
PAID_DECOY = DECOY.model_copy(update={"status": EvalStatus.OK})


def right(speedup: float, coverage: float) -> EvalResult:
    facts = {"speedup": speedup, "time_coverage": coverage}
    return EvalResult(task_id="t", status=EvalStatus.OK, correctness=True, **facts)


def write(path: Path, tasks: list[list[list[EvalResult]]], length: int = 3) -> Path:
    """A validation file: trajectories by task; a prompt of 10 tokens, answers of `length`, feedback of 2."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for task, sample in ((task, sample) for task, samples in enumerate(tasks) for sample in range(len(samples))):
        turns = []
        for number, result in enumerate(tasks[task][sample]):
            start = number * (length + 2)
            named = result.model_copy(update={"task_id": f"t{task}"})
            turns.append(TurnRecord(start=start, stop=start + length, reward=0, result=named, prompt_tokens=10 + start))
        line = {"uid": f"{task}_{sample}_0", "output": "", "task_hash": f"h{task}", "kernel_turns": dump_turns(turns)}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return path


def test_figures_are_of_the_last_turn(tmp_path):
    trajectories = [(WRONG, right(8.0, 0.5)), (right(1.3, 0.1), right(1.1, 0.1)), (WRONG, DECOY), (WRONG, PAID_DECOY)]
    found = held_out(write(tmp_path / "4.jsonl", [trajectories]), {})
    assert found == pytest.approx({
        "correct": 0.5, "correct, first turn": 0.25, "fast@1.2": 0.25, "coverage": 0.3,
        "useful speedup": (3.0 + 1.1) / 4, "decoys": 0.5, "novel": 0.0,
    })  # fmt: skip
    assert set(found) == set(figures.FIGURES)


def test_a_split_has_figures_of_its_own(tmp_path):
    path = write(tmp_path / "4.jsonl", [[(WRONG,)], [(right(2.0, 1.0),)], [(WRONG,)]])
    found = held_out(path, {"t0": "same", "t1": "new_chain"})
    correct = {key: value for key, value in found.items() if key.endswith("correct")}
    assert correct == pytest.approx({"correct": 1 / 3, "same/correct": 0.0, "new_chain/correct": 1.0})


def test_right_programs_that_the_cold_start_lacks_are_novel(tmp_path):
    turn = TurnRecord(start=0, stop=1, reward=1.0, result=right(2.0, 1.0), code="x = 1")
    turns = [turn.model_copy(update={"novel": novel, "novel_bytes": True}) for novel in (True, False)]
    lines = [json.dumps({"kernel_turns": dump_turns([one])}) + "\n" for one in turns]
    (tmp_path / "4.jsonl").write_text("".join(lines))
    assert held_out(tmp_path / "4.jsonl", {})["novel"] == 0.5


@pytest.mark.parametrize(("name", "known"), [
    ("correct", True), ("new_chain/correct", True), ("newer_chain/correct", False), ("new_chain/", False),
    ("new_chain@0.3/correct", True), ("same@best/correct", True), ("same@hot/correct", False), ("@1/correct", False),
])  # fmt: skip
def test_names_of_figures(name, known):
    assert is_figure(name) is known


def test_nothing_right_has_no_coverage(tmp_path):
    assert held_out(write(tmp_path / "4.jsonl", [[(WRONG,)]]), {})["coverage"] == 0.0


@pytest.mark.parametrize("text", ["", "{}\n", "not json\n", '{"kernel_turns": "[{}]"}\n'])
def test_a_file_that_is_no_validation_is_refused(tmp_path, text):
    (tmp_path / "4.jsonl").write_text(text)
    with pytest.raises(DataError, match="4.jsonl is"):
        held_out(tmp_path / "4.jsonl", {})


def value(name: str, turns: list[EvalResult]) -> float:
    """A figure of a trajectory: the best over its turns."""
    judged = turns[:1] if name == "correct, first turn" else turns
    correct = [one for one in judged if one.rewarded]
    if name == "useful speedup":
        return max((min(one.speedup, 3.0) for one in correct), default=0.0)
    return float(any(name != "fast@1.2" or one.speedup > 1.2 for one in correct))


@given(data=st.data(), tasks=st.integers(1, 3), drawn=st.integers(1, 5))
def test_every_figure_is_what_enumerating_gives(tmp_path_factory, data, tasks, drawn):
    results = st.sampled_from([WRONG, DECOY, right(0.5, 1.0), right(1.3, 0.5), right(8.0, 0.1)])
    asked = [[data.draw(st.lists(results, min_size=1, max_size=2)) for _ in range(drawn)] for _ in range(tasks)]
    n = data.draw(st.integers(1, drawn))
    found = best_of_n(read_samples(write(tmp_path_factory.mktemp("run") / "0.jsonl", asked)), n, {"t0": "same"})
    for name in FIGURES:
        means = []
        for samples in asked:
            choices = list(itertools.combinations([value(name, turns) for turns in samples], n))
            means.append(sum(map(max, choices)) / len(choices))
        assert found[name] == pytest.approx(sum(means) / len(means)), name
        assert found[f"same/{name}"] == pytest.approx(means[0]), name


def test_the_figures_are_those_of_trained_arms():
    assert FIGURES.keys() <= figures.FIGURES.keys()


def test_too_few_answers_are_refused(tmp_path):
    samples = read_samples(write(tmp_path / "0.jsonl", [[[WRONG]] * 3]))
    with pytest.raises(DataError, match=r"3 trajectories a task and could afford 4: set .*val_kwargs\.n .* to 4"):
        best_of_n(samples, 4, {})


def test_a_run_has_cost_its_steps_and_its_validations(tmp_path):
    metrics = [{"training/global_step": step, "perf/total_num_tokens": 100 * step} for step in (1, 2)]
    records = [{"step": 0, "data": {"val": 1.0}}, *({"step": i, "data": one} for i, one in enumerate(metrics, 1))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    # A trajectory of one turn has 10 + 3 tokens, one of two 10 + 3 + 2 + 3.
    write(tmp_path / "validation" / "0.jsonl", [[[WRONG]], [[WRONG, WRONG]]])
    write(tmp_path / "validation" / "2.jsonl", [[[WRONG]], [[WRONG]]])
    assert spent(tmp_path) == 300 + 13 + 18 + 26
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "data": {"training/global_step": 1}}))
    with pytest.raises(DataError, match="without perf/total_num_tokens"):
        spent(tmp_path)


@pytest.mark.parametrize(("tokens", "n"), [(0, 1), (25, 1), (51, 1), (52, 2), (78, 3), (1000, 38)])
def test_n_is_what_the_tokens_pay_for_on_every_task(tmp_path, tokens, n):
    assert affordable(read_samples(write(tmp_path / "0.jsonl", [[[WRONG]] * 4, [[WRONG]] * 4])), tokens) == n


def test_a_task_that_comes_twice_is_refused(tmp_path):
    path = write(tmp_path / "0.jsonl", [[[WRONG]]])
    path.write_text(path.read_text() + path.read_text().replace("0_0_0", "1_0_0"))
    with pytest.raises(DataError, match="twice"):
        read_samples(path)
