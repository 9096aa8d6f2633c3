# SPDX-License-Identifier: Apache-2.0
"""What a configuration that does not compose is told: the key, the nearest name and the remedy."""

import pytest

from tests.commands.lines import assert_one_sentence, invoked, run_lines
from tests.sentences import refused
from tests.tiers import thinned
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.composing import compose, why_refused

pytestmark = pytest.mark.slow

REFUSED = {
    "kernelgym.max_turnz=3": "kernelgym.max_turnz is no key of kernel_trloo; did you mean kernelgym.max_turns?",
    "algorithm.adv_estimatr=x": "algorithm.adv_estimatr is no key of kernel_trloo; did you mean algorithm.adv_",
    "trainer.adv_estimator=x": "trainer.adv_estimator is no key of kernel_trloo; did you mean algorithm.adv_estimator?",
    "algorithm.ada.prior_positive=2": "it is a constant now, 1: remove the key",
    "+kernelgym.compile_for=off": "has the key kernelgym.compile_for already: write kernelgym.",
    "kernelgym.nothing_like_it=1": "kernelgym holds feedback, ",
    "trainer.nothing_like_it=1": "a key that it lacks is added with a plus, as in +trainer.nothing_like_it=1",
    "~trainer.save_frek": "trainer.save_frek is no key of kernel_trloo; did you mean trainer.save_freq?",
    "trainer.save_freq.x=1": "trainer.save_freq.x is no key of kernel_trloo; did you mean trainer.save_freq?",
    "+trainer.save_freq=1": "kernel_trloo has the key trainer.save_freq already: write trainer.save_freq=VALUE",
    "mismatch=foo": "mismatch is 'foo'; it must be one of bypass, mrs, ",
    "method=ropr": "method is 'ropr'; did you mean topr? it must be one of ",
    "+mismatch=mrs": "kernel_trloo chooses a mismatch already: write mismatch=CHOICE",
    "gpus=8": "gpus is '8'; it must be one of eight, none, one, sixteen",
    "nonsense": "'nonsense' is no override that can be read: write key=value",
    "trainer.logger=[a": "'trainer.logger=[a' is no override that can be read",
    "hydra.run.dirr=x": "kernel_trloo does not compose: Could not override 'hydra.run.dirr'",
}


@pytest.mark.parametrize("override", thinned(REFUSED))
def test_an_override_that_cannot_work_is_told_in_one_sentence(override):
    with refused(REFUSED[override], by=ConfigError):
        compose("kernel_trloo", ["trainer.test_freq=3", override])


def test_of_two_wrong_keys_the_first_is_told():
    with pytest.raises(ConfigError, match="did you mean kernelgym.max_turns"):
        compose("kernel_trloo", ["kernelgym.max_turnz=3", "algorithm.adv_estimatr=x"])


def test_a_choice_that_verl_does_not_make_is_added():
    with pytest.raises(ConfigError, match=r"ppo_trainer chooses no mismatch: add one, as in \+mismatch=CHOICE"):
        compose("ppo_trainer", ["mismatch=mrs"])


def test_a_users_recipe_may_build_on_ours(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [kernel_trloo, _self_]\nkernelgym: {num_judges: 5}\n")
    assert compose("mine", [], tmp_path).kernelgym.num_judges == 5
    (tmp_path / "bare.yaml").write_text("kernelgym: {num_judges: 5}\n")
    with pytest.raises(ConfigError, match=r"this recipe does not set: write \+kernelgym.compile_for=off"):
        compose("bare", ["kernelgym.compile_for=off"], tmp_path)
    with pytest.raises(ConfigError, match="--config-name is 'mein'; .*it must be one of .*mine"):
        compose("mein", [], tmp_path)
    (tmp_path / "torn.yaml").write_text("defaults: [mismatch: tiss]\n")
    with pytest.raises(ConfigError, match="mismatch is 'tiss'; did you mean tis"):
        compose("torn", [], tmp_path)


@pytest.mark.parametrize("recipe", ["drkernel_8b_sft", "evaluation"])
@pytest.mark.parametrize("command", ["preflight", "plan"])
def test_what_trains_on_no_samples_of_its_own_is_refused(command, recipe):
    said = invoked(command, f"--config-name={recipe}", exit_code=1 if command == "preflight" else 2).stderr
    assert_one_sentence(said, f"--config-name is {recipe}, which has no actor_rollout_ref")


TRAINER = ("python", "-m", "verl.trainer.main_ppo")


@pytest.mark.parametrize(("command", "why"), [
    ((*TRAINER, "--config-name=kernel_trloo", "gpus=8"), "gpus is '8'"),
    ((*TRAINER, "-cn", "kernel_trloo", "method=foo"), "method is 'foo'"),
    ((*TRAINER, "--config-name", "kernel_trlo"), "--config-name is 'kernel_trlo'"),
    ((*TRAINER, "trainer.save_frek=1"), "trainer.save_frek is no key of ppo_trainer"),
])  # fmt: skip
def test_the_command_of_a_trainer_is_explained(command, why):
    assert (why_refused(command) or "").startswith(why)


def test_what_composes_has_nothing_to_explain():
    assert why_refused((*TRAINER, "--config-name=kernel_trloo")) is None
    assert why_refused(("true", "gpus=8")) is None


def test_a_typo_is_refused_before_heavy_imports(tmp_path):
    lines = [["preflight", "--config-name=kernel_trloo", word] for word in ("kernelgym.max_turnz=3", "mismatch=foo")]
    for done in run_lines(lines, tmp_path):
        assert done.status == 1, done.error
        assert_one_sentence(done.error, "")
        assert done.heavy == []
