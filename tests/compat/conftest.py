# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig


@pytest.fixture(scope="session")
def verl_config() -> DictConfig:
    """verl's own configuration."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")
