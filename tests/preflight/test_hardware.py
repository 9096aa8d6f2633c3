# SPDX-License-Identifier: Apache-2.0
"""A machine is this one, or one that is described in words."""

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.preflight.hardware import Machine, described, this_machine


@pytest.fixture
def config() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("kernel_trloo")


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "memory"),
    [("8xH100-80GB", 1, 8, 80_000), ("2x8xH100-80GB", 2, 8, 80_000), ("1xRTX4090-24GB", 1, 1, 24_000)],
)
def test_a_description_is_read(text: str, nodes: int, gpus: int, memory: int):
    assert described(text) == Machine("cuda", gpus, nodes, memory, description=text)


@pytest.mark.parametrize(
    "text", ["", "8", "H100", "8xH100", "0xH100-80GB", "0x8xH100-80GB", "8xH100-80GB ", "axH100-80GB"]
)
def test_anything_else_is_refused_with_the_form(text: str):
    with pytest.raises(ConfigError, match="--machine is .*8xH100-80GB"):
        described(text)


def test_this_machine_starts_its_own_cluster(config, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert this_machine(config).cluster == ""


def test_a_cluster_is_named_by_the_environment(config, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert this_machine(config).cluster == "10.0.0.1:6379"


def test_a_recipe_with_a_cluster_of_its_own_joins_no_other(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with initialize_config_module("verl.trainer.config", version_base=None):
        assert this_machine(compose("cpu_quickstart")).cluster == ""


def test_the_platform_is_that_of_the_environment(config, monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    assert this_machine(config).platform == "cuda"
