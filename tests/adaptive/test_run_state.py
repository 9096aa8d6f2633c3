# SPDX-License-Identifier: Apache-2.0
"""Counts that outlive a run, and options that contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_kernel.adaptive import AdaOptions, run_state
from verl_kernel.errors import ConfigError


def run(path: Path, first: int, found: list[dict[str, tuple[int, int]]]) -> run_state.RunState:
    """Steps of a run that starts with step `first`."""
    own = run_state.begin(AdaOptions(sampling="est", counts_file=str(path), decay=0.5))
    own.restore(first)
    for step, counts in enumerate(found, first):
        own.count(step, counts)
    return own


def test_a_resumed_run_counts_on_from_its_checkpoint(tmp_path: Path) -> None:
    steps = [{"a": (8, 1)}, {"b": (4, 4)}, {"a": (8, 8)}, {"a": (2, 0)}]
    whole = run(tmp_path / "whole.jsonl", 1, steps)
    run(tmp_path / "parts" / "counts.jsonl", 1, steps[:3])
    # The run died in step 3, after the checkpoint of step 2, and half a line was written.
    with (tmp_path / "parts" / "counts.jsonl").open("a") as file:
        file.write('{"step": 4, "fo')
    resumed = run(tmp_path / "parts" / "counts.jsonl", 3, steps[2:])
    assert resumed.counts.seen == whole.counts.seen == {"a": (8 / 4 + 8 / 2 + 2, 1 / 4 + 8 / 2), "b": (4.0, 4.0)}
    assert (tmp_path / "parts" / "counts.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


def test_a_run_from_the_start_forgets_an_earlier_one(tmp_path: Path) -> None:
    run(tmp_path / "counts.jsonl", 1, [{"a": (8, 1)}])
    assert run(tmp_path / "counts.jsonl", 1, []).counts.seen == {}


def test_without_a_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = run_state.begin(AdaOptions(sampling="est"))
    own.count(1, {"a": (8, 1)})
    assert own.counts.seen == {"a": (8.0, 1.0)}
    assert run_state.current() is own
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sampling": "seq"}, "algorithm.ada.sampling is 'seq'; it must be one of none, est, seq_pos, seq_balance"),
        ({"max_draws": 4}, "algorithm.ada.max_draws is 4 and round_size is 8"),
        ({"n_min": 9, "n_max": 8}, "algorithm.ada.n_max is 8 and n_min is 9"),
        ({"k_neg": 2, "sampling": "seq_pos"}, "only seq_balance asks for negatives"),
        ({"epsilon": 0.0}, "algorithm.ada.epsilon is 0.0"),
    ],
)
def test_options_that_cannot_work_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AdaOptions(**values)


def test_a_prompt_must_be_allowed_what_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="16 rollouts are asked for"):
        AdaOptions(sampling="seq_balance", max_draws=12).exit_rule(16)


def test_what_is_positive_is_named_by_a_key() -> None:
    info = {"best_turn_speedup": 1.0, "best_turn_acc": 1.0, "acc": 0.0}
    assert AdaOptions().is_positive(info)
    assert not AdaOptions(positive="acc").is_positive(info)
    assert AdaOptions(positive="best_turn_acc").is_positive(info)
    # A right but slow kernel is negative, so that negatives stay common.
    assert not AdaOptions().is_positive(info | {"best_turn_speedup": 0.9})
    with pytest.raises(ConfigError, match=r"is .speedup., .*must be one of acc, best_turn_acc, best_turn_speedup$"):
        AdaOptions(positive="speedup").is_positive(info)
