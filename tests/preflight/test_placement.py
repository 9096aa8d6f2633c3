# SPDX-License-Identifier: Apache-2.0
"""What trainer, rollout and judges ask for is compared with the machine; what cannot be seen from it is said."""

from collections.abc import Callable, Iterator

import pytest
from hydra import compose, initialize_config_module
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from verl_kernel.errors import ConfigError, EnvironmentNotReady, VerlKernelError
from verl_kernel.preflight import placement
from verl_kernel.preflight.hardware import Machine, described

Check = Callable[[DictConfig, Machine], Iterator[str]]
ONE_NODE = described("8xH100-80GB")
BARE = Machine("cuda", gpus=0)
HEAD = Machine("cuda", gpus=0, cluster="10.0.0.1:6379")


def config(*overrides: str, recipe: str = "kernel_trloo") -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(recipe, overrides=list(overrides))


def refusal(check: Check, machine: Machine, *overrides: str) -> str:
    with pytest.raises(VerlKernelError) as caught:
        list(check(config(*overrides), machine))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("check", [placement.check_judges, placement.check_gpus])
def test_the_recipe_fits_one_node(check: Check):
    assert not list(check(config(), ONE_NODE))


@pytest.mark.parametrize("machine", [ONE_NODE, Machine("cuda", gpus=1), HEAD, BARE])
def test_times_beside_gpus_are_simulated_only_with_a_word(machine: Machine):
    sentence = refusal(placement.check_judges, machine, "kernelgym.device=auto", "kernelgym.gpus_per_judge=0")
    assert "kernelgym.gpus_per_judge is 0" in sentence
    assert "kernelgym.device=cpu" in sentence


def test_the_word_for_simulated_times_is_the_device():
    assert not list(placement.check_judges(config("kernelgym.device=cpu", "kernelgym.gpus_per_judge=0"), ONE_NODE))


def test_a_recipe_for_the_cpu_may_leave_the_device_open():
    assert not list(placement.check_judges(config("kernelgym.device=auto", recipe="cpu_quickstart"), Machine("cpu", 0)))


def test_a_cpu_recipe_with_an_open_device_is_refused():
    with pytest.raises(ConfigError, match="kernelgym.gpus_per_judge is 0"):
        list(placement.check_judges(config("kernelgym.device=auto", recipe="cpu_quickstart"), Machine("cpu", gpus=1)))


def test_judges_for_a_gpu_must_ask_ray_for_one():
    assert "kernelgym.gpus_per_judge is 0" in refusal(placement.check_judges, ONE_NODE, "kernelgym.gpus_per_judge=0")


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_judges_without_any_gpu_are_refused(device: str):
    sentence = refusal(placement.check_judges, BARE, f"kernelgym.device={device}")
    assert sentence.startswith(f"kernelgym.device is {device}")
    assert "RAY_ADDRESS" in sentence


def test_a_head_node_without_a_gpu_may_submit():
    for check in (placement.check_judges, placement.check_gpus):
        assert list(check(config(), HEAD))


def test_what_a_head_node_cannot_see_is_said():
    assert "8 GPUs in the Ray cluster at 10.0.0.1:6379" in next(placement.check_gpus(config(), HEAD))


def test_a_trainer_without_any_gpu_is_refused():
    with pytest.raises(EnvironmentNotReady, match="trainer.device is cuda and this machine has no GPU"):
        list(placement.check_gpus(config(), BARE))


@pytest.mark.parametrize(
    ("overrides", "asked"),
    [
        (("gpus=sixteen",), "16 GPUs (8 the trainer, 8 the judges)"),
        (("kernelgym.num_judges=5",), "9 GPUs (4 the trainer, 5 the judges)"),
        (("trainer_mode=separate_async",), "12 GPUs (4 the trainer, 4 the rollout, 4 the judges)"),
        (("kernelgym.num_judges=9", "kernelgym.gpus_per_judge=0.5"), "9 GPUs (4 the trainer, 5 the judges)"),
        (("kernelgym.num_judges=6", "kernelgym.gpus_per_judge=0.7"), "10 GPUs (4 the trainer, 6 the judges)"),
    ],
)
def test_more_gpus_than_there_are_are_refused_part_by_part(overrides: tuple[str, ...], asked: str):
    sentence = refusal(placement.check_gpus, ONE_NODE, *overrides)
    assert asked in sentence
    assert "kernelgym.num_judges" in sentence


@given(st.integers(1, 8), st.integers(1, 12), st.sampled_from([0.25, 0.5, 1.0]))
def test_what_fits_is_accepted_and_nothing_else(trains: int, judges: int, share: float):
    chosen = config().copy()
    chosen.trainer.n_gpus_per_node, chosen.kernelgym.num_judges = trains, judges
    chosen.kernelgym.gpus_per_judge = share
    try:
        list(placement.check_gpus(chosen, ONE_NODE))
        fits = True
    except ConfigError:
        fits = False
    # Judges of a fraction share whole GPUs.
    assert fits == (trains + -(-judges * share // 1) <= 8)


def test_a_node_has_no_more_gpus_than_it_has():
    with pytest.raises(ConfigError, match="4 a node"):
        list(
            placement.check_gpus(
                config("trainer.n_gpus_per_node=8", "kernelgym.num_judges=4"), described("4x4xA100-80GB")
            )
        )


def test_two_nodes_hold_the_published_recipe():
    assert not list(placement.check_gpus(config(recipe="drkernel_8b"), described("2x8xH100-80GB")))


@pytest.mark.parametrize("override", ["kernelgym.memory_mb=90000", "kernelgym.gpus_per_judge=0.4"])
def test_a_grant_beyond_the_gpu_is_refused(override: str):
    assert "kernelgym.memory_mb is" in refusal(placement.check_judges, described("8xA100-40GB"), override)


def test_one_gpu_is_enough_for_the_smoke_test():
    smoke = config("gpus=one")
    assert not list(placement.check_judges(smoke, described("1xL4-24GB")))
    assert not list(placement.check_gpus(smoke, described("1xL4-24GB")))


def test_a_run_that_judges_nothing_needs_no_word():
    others = (
        "reward.reward_manager.name=naive",
        "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent",
    )
    assert not list(placement.check_judges(config(*others, "kernelgym.gpus_per_judge=0"), ONE_NODE))


def test_a_described_machine_is_not_looked_into():
    (note,) = placement.check_machine(config(), ONE_NODE)
    assert "only described" in note


def test_a_recipe_for_the_cpu_does_not_fit_a_machine_with_gpus():
    with pytest.raises(ConfigError, match="trainer.device is cpu"):
        placement.check_platform(config(recipe="cpu_quickstart"), ONE_NODE)


def test_a_model_on_the_hub_is_named():
    (note,) = placement.check_hub(config("actor_rollout_ref.model.path=nobody/nothing"), ONE_NODE)
    assert "nobody/nothing" in note
