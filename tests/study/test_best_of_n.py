# SPDX-License-Identifier: Apache-2.0
"""The best of n agrees with enumerating all choices, and n with what a run has cost."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipes.cpu_study import held_out
from recipes.cpu_study.best_of_n import FIGURES, affordable, best_of_n, read_samples, spent
from tests.study.test_held_out import DECOY, WRONG, right
from verl_kernel.env import EvalResult
from verl_kernel.errors import DataError
from verl_kernel.reward.record import TurnRecord, dump_turns

RESULTS = st.sampled_from([WRONG, DECOY, right(0.5, 1.0), right(1.3, 0.5), right(8.0, 0.1)])
TRAJECTORIES = st.lists(RESULTS, min_size=1, max_size=2)


def write(path: Path, tasks: list[list[list[EvalResult]]], length: int = 3) -> Path:
    """A validation file: trajectories by task; a prompt of 10 tokens, answers of `length`, feedback of 2."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for (task, samples), sample in ((pair, i) for pair in enumerate(tasks) for i in range(len(pair[1]))):
        turns = []
        for number, result in enumerate(samples[sample]):
            start = number * (length + 2)
            named = result.model_copy(update={"task_id": f"t{task}"})
            turns.append(TurnRecord(start=start, stop=start + length, reward=0, result=named, prompt_tokens=10 + start))
        line = {"uid": f"{task}_{sample}_0", "output": "", "task_hash": f"h{task}", "kernel_turns": dump_turns(turns)}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return path


def value(name: str, turns: list[EvalResult]) -> float:
    """A figure of a trajectory: the best over its turns."""
    judged = turns[:1] if name == "correct, first turn" else turns
    correct = [one for one in judged if one.rewarded]
    if name == "useful speedup":
        return max((min(one.speedup, 3.0) for one in correct), default=0.0)
    return float(any(name != "fast@1.2" or one.speedup > 1.2 for one in correct))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), tasks=st.integers(1, 3), drawn=st.integers(1, 5))
def test_every_figure_is_what_enumerating_gives(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, tasks: int, drawn: int
) -> None:
    asked = [[data.draw(TRAJECTORIES) for _ in range(drawn)] for _ in range(tasks)]
    n = data.draw(st.integers(1, drawn))
    found = best_of_n(read_samples(write(tmp_path_factory.mktemp("run") / "0.jsonl", asked)), n, {"t0": "same"})
    for name in FIGURES:
        means = []
        for samples in asked:
            choices = list(itertools.combinations([value(name, turns) for turns in samples], n))
            means.append(sum(map(max, choices)) / len(choices))
        assert found[name] == pytest.approx(sum(means) / len(means)), name
        assert found[f"same/{name}"] == pytest.approx(means[0]), name


def test_the_figures_are_those_of_trained_arms() -> None:
    assert FIGURES.keys() <= held_out.FIGURES.keys()


def test_too_few_answers_are_refused(tmp_path: Path) -> None:
    samples = read_samples(write(tmp_path / "0.jsonl", [[[WRONG]] * 3]))
    with pytest.raises(DataError, match=r"3 trajectories a task and could afford 4: set .*val_kwargs\.n .* to 4"):
        best_of_n(samples, 4, {})


def test_a_run_has_cost_its_steps_and_its_validations(tmp_path: Path) -> None:
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
def test_n_is_what_the_tokens_pay_for_on_every_task(tmp_path: Path, tokens: int, n: int) -> None:
    samples = read_samples(write(tmp_path / "0.jsonl", [[[WRONG]] * 4, [[WRONG]] * 4]))
    assert affordable(samples, tokens) == n


def test_a_task_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "0.jsonl", [[[WRONG]]])
    path.write_text(path.read_text() + path.read_text().replace("0_0_0", "1_0_0"))
    with pytest.raises(DataError, match="twice"):
        read_samples(path)
