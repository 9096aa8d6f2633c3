# SPDX-License-Identifier: Apache-2.0
"""Every mistake of a start is one sentence that names the key and the remedy."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig

from tests.config.composed import composed
from tests.preflight.folder import BATCH, row, write_folder
from tests.sentences import refused
from verl_kernel.data.rows import write_rows
from verl_kernel.errors import ConfigError, EnvironmentNotReady, RegistrationError
from verl_kernel.plugin import registration
from verl_kernel.preflight import PreflightCallback, machine, preflight
from verl_kernel.preflight.checks import check_verls_own
from verl_kernel.preflight.hardware import Machine
from verl_kernel.preflight.names import check_registries
from verl_kernel.preflight.placement import check_machine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("quickstart"))


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


def config(folder: Path, *overrides: str) -> DictConfig:
    return composed("cpu_quickstart", f"quickstart_dir={folder}", *overrides)


def assert_refused(folder: Path, *overrides: str, words: Iterable[str], start: str = "") -> None:
    with refused(*words, start=start):
        preflight(config(folder, *overrides))


SAMPLER = "trainer.v1.sampler.sampler_kwargs"
BUCKET = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
SCORE = "reward.custom_reward_function.path"
CARRY_OVER = f"{SAMPLER}.group_carry_over=true"
REFUSED: dict[str, tuple[str, ...]] = {
    "kernelgym.max_turns=0": ("kernelgym.max_turns", "at least 1"),
    "+kernelgym.max_turn=2": ("kernelgym.max_turn", "known keys"),
    "kernelgym.context=best": ("kernelgym.context", "concat, last, best_window, top_w"),
    "kernelgym.context=top_w": ("kernelgym.context is top_w", "set trainer.val_only=True"),
    "kernelgym.window=0": ("kernelgym.window", "at least 1"),
    "kernelgym.total_tokens=9000": ("kernelgym.total_tokens is 9000", "set trainer.val_only=True"),
    "kernelgym.total_seconds=60.0": ("kernelgym.total_seconds is 60.0", "set trainer.val_only=True"),
    "kernelgym.device=cuda": ("kernelgym.device", "use device cpu"),
    "algorithm.use_kl_in_reward=true": ("algorithm.use_kl_in_reward", "use_kl_loss"),
    "algorithm.trloo.gamma=2": ("algorithm.trloo.gamma", "between 0 and 1"),
    "algorithm.gamma=2": ("algorithm.gamma is 2", "between 0 and 1"),
    "algorithm.rec.opmd_tau=0": ("algorithm.rec.opmd_tau", "above 0"),
    "+algorithm.rec.shift=-0.1": ("algorithm.rec.shift", "known keys"),
    "algorithm.topr.positive_share=1": ("algorithm.topr.positive_share", "between 0 and 1"),
    "algorithm.topr.reward=raw algorithm.topr.c=null": ("algorithm.topr.c", "to a number"),
    "actor_rollout_ref.rollout.n=1": ("actor_rollout_ref.rollout.n", "algorithm.trloo.singleton to raw"),
    "algorithm.trloo.mask_void_turn=1": ("algorithm.trloo.mask_void_turn", "true or false"),
    "trainer.use_v1=false": ("trainer.use_v1", "set it to true"),
    "algorithm.rollout_correction.bypass_mode=true": ("rollout_correction.bypass_mode", "set it to false"),
    f"{SAMPLER}.threshold=7": ("sampler_kwargs.threshold", "between"),
    f"{SAMPLER}.threshold=1": ("sampler_kwargs.threshold", "width=0"),
    f"{SAMPLER}.level=token": ("sampler_kwargs.level", "turn, trajectory"),
    f"+{SAMPLER}.soft=true": ("sampler_kwargs.soft", "known keys are"),
    "algorithm.filter_groups.enable=true": ("algorithm.filter_groups.enable", "group_filter"),
    "trainer.v1.sampler.sync_refill_failed_groups=true": ("sync_refill_failed_groups", "set it to false"),
    f"{SCORE}=pkg://verl.utils.reward_score.gsm8k": (SCORE, "which never calls it"),
    "reward.reward_model.enable=true": ("reward.reward_model.enable", "set enable to false"),
    f"{SAMPLER}.group_filter=refill": ("data.gen_batch_size", "set data.gen_batch_size to 1"),
    f"{SAMPLER}.group_filter=drop actor_rollout_ref.rollout.n=1": ("group_filter", "raise n"),
    **dict.fromkeys(
        (CARRY_OVER, f"{CARRY_OVER} trainer_mode=colocate_async {SAMPLER}.group_filter=refill"),
        ("group_carry_over", "group_filter=refill in sync", "false"),
    ),
    # A band for mismatch, where samples are older.
    "trainer_mode=colocate_async mismatch=mrs": ("num_warmup_batches", "mismatch=stale_tis"),
    "kernelgym.reward.variant=best": ("kernelgym.reward.variant", "sum, weighted, milestone"),
    # The file logger writes into no package, and into no folder of one.
    **dict.fromkeys(
        ("trainer.project_name=verl_kernel", "trainer.project_name=verl_kernel/runs"),
        ("trainer.project_name is verl_kernel", "into the package", "kernel_runs"),
    ),
    "trainer.experiment_name=../verl_kernel/first": (
        "trainer.experiment_name ../verl_kernel/first",
        "into the package",
    ),
    "trainer.device=cuda": ("trainer.device", "VERL_PLATFORM"),
    "data.train_files=/nowhere/train.parquet": ("data.train_files", "verl-kernel data quickstart"),
    "kernelgym.cold_start=/nowhere/corpus.parquet": ("kernelgym.cold_start: /nowhere/corpus", "set it to null"),
    "kernelgym.cold_start=${data.train_files}": ("kernelgym.cold_start", "has no column `messages`"),
    "actor_rollout_ref.model.path=/nowhere": ("actor_rollout_ref.model.path", "verl-kernel data quickstart"),
    "actor_rollout_ref.model.path=0/": ("actor_rollout_ref.model.path is 0/", "folder or hub name"),
    "kernelgym.require_isolation=[moat]": ("kernelgym.require_isolation", "verl-kernel doctor"),
    f"{BUCKET}=999999999": ("/dev/shm", "--shm-size"),
    "kernelgym.device=auto ++kernelgym.gpus_per_judge=1": ("is auto and kernelgym.gpus_per_judge is 1, and this mach",),
    # A right answer earns something for rsft.
    **dict.fromkeys(
        (f"method=rsft kernelgym.reward.{worth}" for worth in ("correct_weight=0.0", "slow_penalty=0.5")),
        ("algorithm.adv_estimator is rsft", "raise kernelgym.reward.correct_weight"),
    ),
    # A run without a validation set.
    **dict.fromkeys(
        (f"data.val_files={value} trainer.val_before_train=true trainer.test_freq=5" for value in ("null", "[]", "''")),
        ("data.val_files names no file: give a parquet file",),
    ),
}
"""Overrides by words of the sentence that refuses them: the key, and the remedy."""


@pytest.mark.parametrize("overrides", REFUSED)
def test_a_bad_value_is_refused_by_key_and_remedy(quickstart, overrides):
    assert_refused(quickstart, *overrides.split(), words=REFUSED[overrides])


def test_a_name_of_a_model_holds_no_blank(quickstart):
    said = "actor_rollout_ref.model.path is a b/c"
    assert_refused(quickstart, "actor_rollout_ref.model.path='a b/c'", words=["folder or hub name"], start=said)


MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
REBUILT = (
    *("trainer.val_only=true", "kernelgym.context=top_w", "data.max_prompt_length=900"),
    *("data.max_response_length=200", "actor_rollout_ref.rollout.max_model_len=1100"),
)


@pytest.mark.parametrize(("override", "key", "remedy"), [
    ("trainer.val_before_train=false", "kernelgym.context is top_w", "leave trainer.val_before_train on"),
    ("data.max_prompt_length=200", "data.max_prompt_length is 200", "kernelgym.window turns"),
    ("actor_rollout_ref.rollout.max_model_len=1099", "max_model_len is 1099", "set it to 1100 or more"),
    (f"{MANAGER}=null", f"{MANAGER} is None", "set it to verl_kernel.rollout.manager.KernelAgentLoopManager"),
])  # fmt: skip
def test_what_a_rebuilt_context_needs_is_named(quickstart, override, key, remedy):
    assert_refused(quickstart, *REBUILT, override, words=(key, remedy))


@pytest.mark.parametrize("overrides", [
    "", " ".join((*REBUILT, "kernelgym.total_tokens=9000", "kernelgym.total_seconds=60.5")),
    "method=rsft kernelgym.reward.slow_penalty=0.4", "kernelgym.reward.correct_weight=0.0",
    "kernelgym.reward.slow_penalty=0.5", "kernelgym.cold_start=null", "kernelgym.device=auto",
    f"{SAMPLER}.group_filter=drop", f"{SAMPLER}.group_filter=refill data.gen_batch_size=1",
    f"{SAMPLER}.group_filter=refill trainer_mode=colocate_async",
    f"{SAMPLER}.group_filter=refill {SAMPLER}.group_carry_over=true data.gen_batch_size=1 mismatch=stale_tis",
    f"{SAMPLER}.group_filter=drop {SAMPLER}.group_spread=last_turn",
    f"{SAMPLER}.level=trajectory {SAMPLER}.width=0 {SAMPLER}.speedup_threshold=1.2 {SAMPLER}.key=number_coverage",
    # verl's own switches are left to verl's own samplers.
    "algorithm.filter_groups.enable=true trainer.v1.sampler.custom_sampler.path=null",
    # KL in the reward is left to estimators that bear it; verl asks how the reference's log-probs are taken.
    "algorithm.use_kl_in_reward=true algorithm.adv_estimator=grpo"
    " actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1",
])  # fmt: skip
def test_a_sound_configuration_passes(quickstart, overrides):
    preflight(config(quickstart, *overrides.split()))


def test_rejection_without_coverage_is_refused(quickstart, tmp_path):
    path = tmp_path / "train.parquet"
    write_rows([{key: value for key, value in row().items() if key != "agent_name"}] * BATCH, path)
    other = (f"data.train_files={path}", "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent")
    assert_refused(quickstart, *other, words=(f"{SAMPLER}.enabled", "default_agent_loop", "coverage"))
    preflight(config(quickstart, *other, f"{SAMPLER}.enabled=false"))
    write_rows([row(agent_name="single_turn_agent")] * BATCH, path)
    assert_refused(quickstart, other[0], words=["kernel_agent"])
    preflight(config(quickstart, other[1]))


@pytest.mark.parametrize(("changes", "key"), [
    ({"reward_model": {"style": "rule"}}, "reward_model.ground_truth"),
    ({"reward_model": {"style": "rule", "ground_truth": "def f(:"}}, "reward_model.ground_truth"),
    ({"prompt": []}, "prompt"),
])  # fmt: skip
def test_a_bad_row_is_refused_by_file_and_key(quickstart, tmp_path, changes, key):
    path = tmp_path / "train.parquet"
    write_rows([row(**changes)], path)
    assert_refused(quickstart, f"data.train_files={path}", words=("data.train_files", str(path), key))


def test_an_empty_validation_set_is_refused(quickstart, tmp_path):
    path = tmp_path / "val.parquet"
    pq.write_table(pq.read_table(quickstart / "val.parquet").slice(0, 0), path)
    said = f"data.val_files: {path} holds no rows: write at least one task into it"
    overrides = (f"data.val_files={path}", "trainer.val_before_train=true", "trainer.test_freq=5")
    assert_refused(quickstart, *overrides, words=[said])


def test_a_machine_without_vllm_is_refused(quickstart, monkeypatch):
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name.startswith("vllm"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert_refused(quickstart, words=("actor_rollout_ref.rollout.name", "verl-kernel[gpu]"))


def test_a_missing_compiler_is_refused_where_triton_compiles(quickstart, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    preflight(config(quickstart))
    monkeypatch.delenv("VERL_PLATFORM")
    with pytest.raises(EnvironmentNotReady, match="no C compiler.*install gcc"):
        list(check_machine(config(quickstart), Machine("cuda", gpus=1)))


def test_a_name_lost_to_someone_else_is_refused(quickstart, monkeypatch):
    monkeypatch.setitem(registration._registry("agent loop"), "kernel_agent", {"_target_": "other.Loop"})
    assert_refused(quickstart, words=("kernel_agent", "other.Loop"))


@pytest.mark.parametrize(("kind", "name", "use"), [
    ("advantage estimator", "topr_signed", "algorithm.adv_estimator"),
    ("policy loss", "rec_ring", "actor_rollout_ref.actor.policy_loss.loss_mode"),
    ("reward manager", "kernelgym", "reward.reward_manager.name"),
    ("agent loop", "kernel_agent", "actor_rollout_ref.rollout.agent.default_agent_loop"),
])  # fmt: skip
def test_a_lost_name_concerns_only_those_who_use_it(quickstart, monkeypatch, caplog, kind, name, use):
    def someone_elses() -> None: ...

    monkeypatch.setitem(registration._registry(kind), name, someone_elses)
    check_registries(config(quickstart, f"{use}=something"))
    assert name in caplog.text
    assert "someone_elses" in caplog.text
    for lost, who in ((False, "someone_elses"), (True, "not registered")):
        if lost:
            monkeypatch.delitem(registration._registry(kind), name)
        with refused(who, "VERL_USE_EXTERNAL_PLUGINS", by=RegistrationError, start=f"{use} is {name}"):
            check_registries(config(quickstart, f"{use}={name}"))


def test_every_failure_ends_the_process(quickstart, monkeypatch):
    with pytest.raises(SystemExit, match="kernelgym.max_turns"):
        PreflightCallback().on_job_start(config(quickstart, "kernelgym.max_turns=0"))
    monkeypatch.setattr(machine, "vllm", lambda: 1 / 0)
    with pytest.raises(SystemExit) as caught:
        PreflightCallback().on_job_start(config(quickstart))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_trainer_stops_with_one_sentence(quickstart):
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-name=cpu_quickstart"]
    command += [f"quickstart_dir={quickstart}", "kernelgym.max_turns=0", f"hydra.run.dir={quickstart}/run"]
    environment = {**os.environ, "VERL_PLATFORM": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("verl-kernel: kernelgym.max_turns is 0")
    assert "ray init kwargs" not in done.stdout


# What verl refuses once Ray and vLLM are there is refused before.
MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"
LOG_PROB = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8"
FIXED = "actor_rollout_ref.actor.use_dynamic_bsz=false"
UNSAID = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null"
LOG_UNSAID = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=null"


@pytest.mark.parametrize("recipe", ["kernel_trloo", "drkernel_8b", "cpu_quickstart"])
def test_verl_takes_the_recipes_and_leaves_them_as_they_are(recipe, capsys):
    given = composed(recipe)
    check_verls_own(given)
    assert capsys.readouterr().out == ""
    assert given == composed(recipe)


@pytest.mark.parametrize(("overrides", "said"), [
    ((FIXED, UNSAID), "ppo_micro_batch_size"), ((FIXED, MICRO, LOG_UNSAID), "log_prob_micro_batch_size"),
    ((FIXED, MICRO, LOG_PROB, "data.train_batch_size=3"), "batch"),
    (("actor_rollout_ref.rollout.temperature=0",), "temperature"),
])  # fmt: skip
def test_verls_refusal_is_one_sentence(overrides, said):
    with refused(said, by=ConfigError, start="verl refuses this configuration: "):
        check_verls_own(composed("kernel_trloo", *overrides))
