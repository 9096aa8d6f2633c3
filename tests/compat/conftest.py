# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.config.composed import composed


@pytest.fixture
def verl_config():
    return composed("ppo_trainer")
