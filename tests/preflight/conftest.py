# SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.fixture(scope="session", autouse=True)
def trainer():
    """verl asks for its platform once, when its trainer is imported: before tests pretend another one."""
    import verl.trainer.ppo.v1  # noqa: F401
