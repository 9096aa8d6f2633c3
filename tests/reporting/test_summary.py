# SPDX-License-Identifier: Apache-2.0
"""What a run's folder holds: steps, validations, kernels, the facts of its configuration, and what changed."""

import pytest
from rich.console import Console

from tests.reporting.runs import kernel, step, validation, write_lines
from verl_kernel.bench.best_kernels import best_of_run
from verl_kernel.errors import DataError
from verl_kernel.reporting.kernels import best_kernels, read_kernels
from verl_kernel.reporting.steps import read_steps, read_validations, series, steps_table
from verl_kernel.reporting.summary import Change, before_and_after, first_and_last, run_facts, timing_source, window

CONFIG = """
data: {train_files: "${quickstart_dir}/train.parquet", val_files: "${oc.env:NO_SUCH_VARIABLE}"}
quickstart_dir: outputs
trainer: {total_training_steps: 20}
kernelgym: {max_turns: 2}
"""
WORDS = """
algorithm: {rollout_correction: {rollout_rs: "seq_mean_k1,seq_max_k2", rollout_is: token}}
actor_rollout_ref: {actor: {policy_loss: {loss_mode: vanilla}}}
trainer: {v1: {sampler: {sampler_kwargs: {enabled: true}}}}
"""


def config(folder, text):
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "config.yaml").write_text(text)


def test_facts_come_from_the_configuration(tmp_path):
    config(tmp_path, CONFIG)
    facts = run_facts(tmp_path, [{"step": 7, "timing_s/step": 2.5}])
    assert (facts["training data"], facts["turns"]) == ("outputs/train.parquet", "2")
    assert facts["steps"] == "7 of 20, not finished"
    assert "validation data" not in facts
    assert "estimator" not in facts


def test_values_of_the_configuration_are_said_in_words(tmp_path):
    config(tmp_path, WORDS)
    facts = run_facts(tmp_path, [])
    words = "a trajectory's mean ratio and a trajectory's largest squared log ratio (seq_mean_k1,seq_max_k2)"
    assert (facts["mismatch rejects by"], facts["mismatch weighs"]) == (words, "each token")
    assert (facts["loss"], facts["PRS"]) == ("PPO's clip (vanilla)", "on")


def test_what_there_are_no_words_for_stays_as_it_is(tmp_path):
    config(tmp_path, "algorithm: {adv_estimator: mine, rollout_correction: {rollout_rs: 'seq_mean_mine'}}")
    assert run_facts(tmp_path, []) == {"steps": "0", "estimator": "mine", "mismatch rejects by": "seq_mean_mine"}


@pytest.mark.parametrize("text", ["", "a: [1", "- 1", "\x00"])
def test_a_broken_configuration_leaves_what_the_steps_tell(tmp_path, text):
    config(tmp_path, text)
    assert run_facts(tmp_path, [{"step": 7}]) == {"steps": "7"}


@pytest.mark.parametrize(("shares", "source"), [
    ((1.0, 1.0), "simulated:"), ((0.0,), "cuda_event:"), ((None,), "unknown:"), ((1.0, 0.0), "mixed:"),
])  # fmt: skip
def test_the_source_of_times_is_named(shares, source):
    assert timing_source([{"step": 1, "kernel/simulated_clock": share} for share in shares]).startswith(source)


def test_times_that_nothing_measured_confirms_are_named():
    steps = [{"step": 1, "kernel/simulated_clock": 1.0, "kernel/unvalidated_clock": share} for share in (0.0, 1.0)]
    assert timing_source(steps[:1]).startswith("simulated: ")
    assert timing_source(steps).startswith("simulated_unvalidated: ")


def test_steps_are_read_in_order(tmp_path):
    first = step(1, **{"critic/score/mean": 0.5})
    path = write_lines(tmp_path / "metrics.jsonl", validation(0, acc=1.0), first, step(2))
    assert [s["step"] for s in read_steps(path)] == [1, 2]


def test_a_step_logged_twice_counts_once_as_it_was_logged_last(tmp_path):
    path = write_lines(tmp_path / "metrics.jsonl", step(1, x=1.0), step(2, x=2.0), step(2, x=3.0))
    assert series(read_steps(path), "x") == [(1, 1.0), (2, 3.0)]


def test_validations_are_read_from_both_records(tmp_path):
    last = step(2, **validation(2, acc=0.5, best_turn_acc=0.75)["data"], **{"val-aux/num_turns/mean": 4.0})
    path = write_lines(tmp_path / "metrics.jsonl", validation(0, acc=0.25), step(1), last)
    second = {"step": 2, "held_out/acc": 0.5, "held_out/best_turn_acc": 0.75}
    assert read_validations(path) == [{"step": 0, "held_out/acc": 0.25}, second]


def test_only_the_mean_over_all_samples_is_a_figure(tmp_path):
    data = {"val-core/a/b/acc/mean@4": 0.5, "val-core/a/b/acc/best@4/mean": 0.9, "val-aux/a/b/acc/std@4": 0.1}
    path = write_lines(tmp_path / "metrics.jsonl", {"step": 0, "data": data})
    assert read_validations(path) == [{"step": 0, "a/b/acc": 0.5}]


def test_the_novel_share_of_the_correct_is_told_by_data_source(tmp_path):
    new = validation(0, "new", acc=0.5, novel_acc=0.125, best_turn_acc=0.8, best_turn_novel_acc=0.4)["data"]
    wrong = validation(0, "wrong", acc=0.0, novel_acc=0.0)["data"]
    (found,) = read_validations(write_lines(tmp_path / "metrics.jsonl", {"step": 0, "data": new | wrong}))
    assert (found["new/novel_correct"], found["new/best_turn_novel_correct"]) == (0.25, 0.5)
    assert "wrong/novel_correct" not in found


def test_unfinished_and_foreign_lines_are_left_out(tmp_path):
    path = write_lines(tmp_path / "metrics.jsonl", step(1), "[]", "3", '{"step": 5}', "", '{"step": 2, "da')
    assert [s["step"] for s in read_steps(path)] == [1]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="metrics.jsonl does not exist"):
        read_steps(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "text", True, [1]])
def test_what_is_no_number_is_shown_as_a_dash(value, tmp_path):
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    console.print(steps_table([{"step": 1, "critic/score/mean": 0.25, "kernel/correct_rate": value}], "run"))
    row = console.export_text().splitlines()[4]
    assert "0.250" in row
    assert row.count(" - ") == 7
    assert series([{"step": 1, "x": value}], "x") == []


def test_the_fastest_of_each_task_come_first(tmp_path):
    made = ((1, "relu", 2.0), (1, "sum", 3.0), (2, "relu", 4.0), (3, "max", 1.0))
    path = write_lines(tmp_path / "kernels.jsonl", *(kernel(*one) for one in made))
    assert [(k["task_id"], k["speedup"]) for k in best_kernels(read_kernels(path), 2)] == [("relu", 4.0), ("sum", 3.0)]


def test_what_is_sure_of_a_measured_speedup_decides(tmp_path):
    """A page and `verl-kernel best` name the same kernel."""
    made = ((1, 3.0, {"sure_speedup": 1.5}), (2, 2.5, {"sure_speedup": 2.2}), (3, 9.0, {}))
    measured = (kernel(n, speedup=speedup, timing_source="cuda_event", **low) for n, speedup, low in made)
    path = write_lines(tmp_path / "kernels.jsonl", *measured)
    assert [k["step"] for k in best_kernels(read_kernels(path), 2)] == [2]
    assert [best.provenance.step for best in best_of_run(tmp_path)] == [2]


def test_broken_and_foreign_lines_are_left_out(tmp_path):
    foreign = ('{"step": 1}', "null", "7", "not json", '{"step": 2, "task_id": "relu", "sp')
    path = write_lines(tmp_path / "kernels.jsonl", kernel(1) | {"more": 1}, kernel(2, speedup="fast"), *foreign)
    assert [k["step"] for k in read_kernels(path)] == [1]


def test_a_run_without_the_file_has_no_kernels(tmp_path):
    assert read_kernels(tmp_path / "kernels.jsonl") == []


def steps(rewards, correct):
    pairs = enumerate(zip(rewards, correct, strict=True), start=1)
    return [{"step": n, "critic/score/mean": r, "kernel/correct_rate": c} for n, (r, c) in pairs]


def cells(changes):
    return {change.name: change.cells[1:] for change in changes}


def test_five_steps_at_either_end_are_compared():
    run = steps([1.0] * 5 + [9.0] * 3 + [2.0] * 5, [0.25] * 5 + [0.0] * 3 + [0.75] * 5)
    changes = cells(first_and_last(run))
    assert changes == {"reward": ["1.000", "2.000", "x 2.00"], "correct rate": ["0.250", "0.750", "+0.500"]}


def test_a_short_run_is_compared_by_halves_that_do_not_overlap():
    run = steps([1.0, 5.0, 3.0], [0.5, 0.0, 0.25])
    assert window(run) == 1
    assert cells(first_and_last(run))["reward"] == ["1.000", "3.000", "x 3.00"]
    assert first_and_last(run[:1]) == first_and_last([]) == []


def test_a_metric_that_was_logged_at_one_end_only_has_no_change():
    run = [{"step": 1, "kernel/fast@1.2": None}, {"step": 2, "kernel/fast@1.2": 0.5}]
    assert cells(first_and_last(run)) == {"fast@1.2": ["-", "0.500", "-"]}


@pytest.mark.parametrize("before", [0.0, -1.0])
def test_a_factor_needs_something_to_multiply(before):
    assert Change("reward", before, 2.0, is_factor=True).cells[-1] == "-"


def test_held_out_tasks_before_and_after():
    validations = [{"step": n, "held_out/acc": n / 10, "held_out/best_turn_acc": 0.5} for n in (0, 3, 6)]
    assert cells(before_and_after(validations)) == {
        "correct rate, last turn": ["0.000", "0.600", "+0.600"],
        "correct rate, best turn": ["0.500", "0.500", "+0.000"],
    }


def test_one_validation_has_no_after_and_none_has_no_figure():
    one = before_and_after([{"step": 0, "held_out/acc": 0.5}])
    assert cells(one) == {"correct rate, last turn": ["0.500", "-", "-"]}
    assert before_and_after([]) == []


def test_data_sources_are_told_apart():
    found = cells(before_and_after([{"step": 0, "a/acc": 0.5, "b/x/acc": 0.25}, {"step": 5, "a/acc": 1.0}]))
    assert list(found) == ["a: correct rate, last turn", "b/x: correct rate, last turn"]
