# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.reporting.summary import run_facts, timing_source

CONFIG = """
data: {train_files: "${quickstart_dir}/train.parquet", val_files: "${oc.env:NO_SUCH_VARIABLE}"}
quickstart_dir: outputs
trainer: {total_training_steps: 20}
kernelgym: {max_turns: 2}
"""


def config(folder, text):
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "config.yaml").write_text(text)


def test_facts_come_from_the_configuration(tmp_path):
    config(tmp_path, CONFIG)
    facts = run_facts(tmp_path, [{"step": 7, "timing_s/step": 2.5}])
    assert facts["training data"] == "outputs/train.parquet"
    assert facts["turns"] == "2"
    assert facts["steps"] == "7 of 20, not finished"
    assert "validation data" not in facts
    assert "estimator" not in facts


def test_values_of_the_configuration_are_said_in_words(tmp_path):
    config(
        tmp_path,
        """
algorithm: {rollout_correction: {rollout_rs: "seq_mean_k1,seq_max_k2", rollout_is: token}}
actor_rollout_ref: {actor: {policy_loss: {loss_mode: vanilla}}}
trainer: {v1: {sampler: {sampler_kwargs: {enabled: true}}}}
""",
    )
    facts = run_facts(tmp_path, [])
    words = "a trajectory's mean ratio and a trajectory's largest squared log ratio (seq_mean_k1,seq_max_k2)"
    assert facts["mismatch rejects by"] == words
    assert facts["mismatch weighs"] == "each token"
    assert (facts["loss"], facts["PRS"]) == ("PPO's clip (vanilla)", "on")


def test_what_there_are_no_words_for_stays_as_it_is(tmp_path):
    config(tmp_path, "algorithm: {adv_estimator: mine, rollout_correction: {rollout_rs: 'seq_mean_mine'}}")
    assert run_facts(tmp_path, []) == {"steps": "0", "estimator": "mine", "mismatch rejects by": "seq_mean_mine"}


@pytest.mark.parametrize("text", ["", "a: [1", "- 1", "\x00"])
def test_a_broken_configuration_leaves_what_the_steps_tell(tmp_path, text):
    config(tmp_path, text)
    assert run_facts(tmp_path, [{"step": 7}]) == {"steps": "7"}


@pytest.mark.parametrize(
    ("shares", "source"),
    [((1.0, 1.0), "simulated:"), ((0.0,), "cuda_event:"), ((None,), "unknown:"), ((1.0, 0.0), "mixed:")],
)
def test_the_source_of_times_is_named(shares, source):
    assert timing_source([{"step": 1, "kernel/simulated_clock": share} for share in shares]).startswith(source)


def test_times_that_nothing_measured_confirms_are_named():
    steps = [{"step": 1, "kernel/simulated_clock": 1.0, "kernel/unvalidated_clock": share} for share in (0.0, 1.0)]
    assert timing_source(steps[:1]).startswith("simulated: ")
    assert timing_source(steps).startswith("simulated_unvalidated: ")
