# SPDX-License-Identifier: Apache-2.0
"""What trainer, rollout and judges ask for is compared with the machine; what cannot be seen from it is said."""

import importlib.metadata
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from tests.config.composed import composed
from tests.sentences import refused
from verl_kernel.errors import ConfigError, VerlKernelError
from verl_kernel.preflight import placement
from verl_kernel.preflight.hardware import Machine, described, this_machine
from verl_kernel.preflight.placement import CHOICE, SHARDS, check_attention, check_gpus, check_judges, check_shards

Check = Callable[[DictConfig, Machine], Iterator[str]]
ONE_NODE = described("8xH100-80GB")
FULL = Machine("cuda", gpus=8)
BARE = Machine("cuda", gpus=0)
HEAD = Machine("cuda", gpus=0, cluster="10.0.0.1:6379")

DEVICE, MANY = "kernelgym.device", "kernelgym.num_judges"
SHARE, MEMORY = "kernelgym.gpus_per_judge", "kernelgym.memory_mb"
NO_JUDGES = "reward.reward_manager.name=naive", "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent"
OFF = "kernelgym.prefilter=off"
PARALLEL = "actor_rollout_ref.rollout.tensor_model_parallel_size"


def notes(check: Check, machine: Machine, *overrides: str, recipe: str = "kernel_trloo") -> list[str]:
    return list(check(composed(recipe, *overrides), machine))


@pytest.mark.slow
@pytest.mark.parametrize(("check", "machine", "recipe", "overrides"), [
    (check_judges, ONE_NODE, "kernel_trloo", ()),
    (check_gpus, ONE_NODE, "kernel_trloo", ()),
    (check_gpus, described("2x8xH100-80GB"), "drkernel_8b", ()),
    (check_judges, described("1xL4-24GB"), "kernel_trloo", ("gpus=one",)),
    (check_gpus, described("1xL4-24GB"), "kernel_trloo", ("gpus=one",)),
    # The word for simulated times is the device.
    (check_judges, ONE_NODE, "kernel_trloo", (f"{DEVICE}=cpu", f"{SHARE}=0", OFF)),
    (check_judges, Machine("cpu", 0), "cpu_quickstart", (f"{DEVICE}=auto",)),
    (check_judges, ONE_NODE, "kernel_trloo", (*NO_JUDGES, f"{SHARE}=0")),
    # torch's own attention needs no package.
    (check_attention, FULL, "kernel_trloo", ()),
])  # fmt: skip
def test_what_fits_passes(check, machine, recipe, overrides):
    assert notes(check, machine, *overrides, recipe=recipe) == []


DRIVER_REMEDY = "build without CUDA" if torch.version.cuda is None else "which needs 580 or later"
TOLD = (DEVICE, f"{DEVICE}=cpu", f"{SHARE} is 0")
ABSENT = (f"{DEVICE}=cuda", f"{DEVICE}=auto")


@pytest.mark.slow
@pytest.mark.parametrize(("check", "machine", "overrides", "words"), [
    # Times beside GPUs are simulated only with a word.
    *((check_judges, machine, (ABSENT[1], f"{SHARE}=0", OFF), TOLD) for machine in (ONE_NODE, Machine("cuda", 1))),
    *((check_judges, machine, (ABSENT[1], f"{SHARE}=0", OFF), TOLD) for machine in (HEAD, BARE)),
    (check_judges, ONE_NODE, (f"{SHARE}=0",), (f"{SHARE} is 0",)),
    (placement.check_driver, Machine("cuda", 8, driver="470.1"), (), ("470.1", DRIVER_REMEDY)),
    (check_judges, BARE, (ABSENT[0],), (f"{DEVICE} is cuda", "RAY_ADDRESS")),
    (check_judges, BARE, (ABSENT[1], OFF), (f"{DEVICE} is auto", "RAY_ADDRESS")),
    (check_judges, described("8xA100-40GB"), (f"{MEMORY}=90000",), (f"{MEMORY} is",)),
    (check_judges, described("8xA100-40GB"), (f"{SHARE}=0.3",), (f"{MEMORY} is",)),
    (check_gpus, BARE, (), ("trainer.device is cuda and this machine has no GPU",)),
    (check_gpus, ONE_NODE, ("gpus=sixteen",), ("16 GPUs (8 the trainer, 8 the judges)", MANY)),
    (check_gpus, ONE_NODE, (f"{MANY}=5", f"{SHARE}=1"), ("9 GPUs (4 the trainer, 5 the judges)", MANY)),
    (check_gpus, ONE_NODE, ("trainer_mode=separate_async",), ("12 GPUs (4 the trainer, 4 the rollout, 4 the j",)),
    (check_gpus, ONE_NODE, (f"{MANY}=9", f"{SHARE}=0.5"), ("9 GPUs (4 the trainer, 5 the judges)",)),
    (check_gpus, ONE_NODE, (f"{MANY}=6", f"{SHARE}=0.7"), ("10 GPUs (4 the trainer, 6 the judges)",)),
    (check_gpus, described("4x4xA100-80GB"), ("trainer.n_gpus_per_node=8", f"{MANY}=4"), ("4 a node",)),
])  # fmt: skip
def test_what_does_not_fit_is_refused_part_by_part(check, machine, overrides, words):
    with refused(*words):
        notes(check, machine, *overrides)


def test_a_cpu_recipe_of_any_device_is_refused_beside_a_gpu():
    with pytest.raises(ConfigError, match="kernelgym.gpus_per_judge is 0"):
        notes(check_judges, Machine("cpu", gpus=1), f"{DEVICE}=auto", recipe="cpu_quickstart")


@pytest.mark.parametrize(("check", "machine", "override", "words"), [
    (check_judges, HEAD, "gpus=eight", ""),
    (check_gpus, HEAD, "gpus=eight", "8 GPUs in the Ray cluster at 10.0.0.1:6379"),
    (placement.check_machine, ONE_NODE, "gpus=eight", "only described"),
    (placement.check_hub, ONE_NODE, "actor_rollout_ref.model.path=nobody/nothing", "nobody/nothing"),
])  # fmt: skip
def test_what_cannot_be_seen_is_said(check, machine, override, words):
    assert words in notes(check, machine, override)[0]


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(1, 12), st.sampled_from([0.25, 0.5, 1.0]))
def test_what_fits_is_accepted_and_nothing_else(trains, judges, share):
    asked = f"trainer.n_gpus_per_node={trains}", f"{MANY}={judges}", f"{SHARE}={share}"
    try:
        notes(check_gpus, ONE_NODE, *asked)
        fits = True
    except ConfigError:
        fits = False
    # Judges of a fraction share whole GPUs.
    assert fits == (trains + -(-judges * share // 1) <= 8)


def test_a_recipe_for_the_cpu_does_not_fit_a_machine_with_gpus():
    with pytest.raises(ConfigError, match="trainer.device is cpu"):
        placement.check_platform(composed("cpu_quickstart"), ONE_NODE)


def test_verls_choice_is_flash_attention():
    config = composed("ppo_trainer", "actor_rollout_ref.rollout.name=vllm")
    assert placement.attention(config) == "flash_attention_2"


def test_flash_attention_without_its_package_is_refused():
    with pytest.raises(VerlKernelError, match="flash_attention_2.*pip install --no-build-isolation flash-attn==2.8.3"):
        notes(check_attention, FULL, recipe="drkernel_8b")


@pytest.mark.parametrize("package", ["flash-attn", "kernels"])
def test_either_package_will_do(package, monkeypatch):
    def version(name: str) -> str:
        if name == package:
            return "1"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert not notes(check_attention, FULL, recipe="drkernel_8b")


@pytest.mark.parametrize("machine", [ONE_NODE, Machine("cuda", gpus=0, cluster="auto")])
def test_where_the_package_cannot_be_seen_it_is_said(machine):
    (note,) = notes(check_attention, machine, recipe="drkernel_8b")
    assert "flash-attn" in note


@pytest.mark.parametrize("recipe", ["kernel_trloo", "drkernel_8b", "cpu_quickstart"])
def test_a_models_shards_are_sound_in_the_recipes(recipe):
    check_shards(composed(recipe))


def test_rows_that_verl_packs_by_tokens_need_not_divide():
    check_shards(
        composed("cpu_quickstart", "trainer.n_gpus_per_node=3", "actor_rollout_ref.actor.use_dynamic_bsz=true")
    )


@pytest.mark.parametrize(("recipe", "overrides", "words"), [
    # A sequence is shared in flash attention only.
    ("kernel_trloo", (f"{SHARDS}=2",), f"{SHARDS} is 2 and {CHOICE} is sdpa"),
    ("drkernel_8b", (f"{SHARDS}=3",), f"{SHARDS} is 3 and there are 8 GPUs"),
    ("drkernel_8b", (f"{PARALLEL}=3",), f"{PARALLEL} is 3 and there are 8 GPUs"),
    ("cpu_quickstart", ("trainer.n_gpus_per_node=3",), "data.train_batch_size x actor_rollout_ref.rollout.n is 64"),
    # A rollout apart is divided by itself.
    (
        "kernel_trloo", ("trainer_mode=separate_async", "actor_rollout_ref.rollout.n_gpus_per_node=2", f"{PARALLEL}=4"),
        "actor_rollout_ref.rollout.nnodes",
    ),
])  # fmt: skip
def test_shards_that_do_not_divide_the_gpus_are_refused(recipe, overrides, words):
    with pytest.raises(ConfigError, match=words):
        check_shards(composed(recipe, *overrides))


@pytest.mark.parametrize(("text", "nodes", "gpus", "memory"), [
    ("8xH100-80GB", 1, 8, 80_000), ("2x8xH100-80GB", 2, 8, 80_000), ("1xRTX4090-24GB", 1, 1, 24_000),
])  # fmt: skip
def test_a_description_is_read(text, nodes, gpus, memory):
    assert described(text) == Machine("cuda", gpus, nodes, memory, description=text)


@pytest.mark.parametrize(
    "text", ["", "8", "H100", "8xH100", "0xH100-80GB", "0x8xH100-80GB", "8xH100-80GB ", "axH100-80GB"]
)
def test_anything_else_is_refused_with_the_form(text):
    with pytest.raises(ConfigError, match="--machine is .*8xH100-80GB"):
        described(text)


@pytest.mark.parametrize(("recipe", "address", "cluster"), [
    ("kernel_trloo", None, ""), ("kernel_trloo", "10.0.0.1:6379", "10.0.0.1:6379"),
    # A recipe with a cluster of its own joins no other.
    ("cpu_quickstart", "10.0.0.1:6379", ""),
])  # fmt: skip
def test_platform_and_cluster_are_those_of_the_environment(recipe, address, cluster, monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    machine = this_machine(composed(recipe))
    assert (machine.platform, machine.cluster) == ("cuda", cluster)
