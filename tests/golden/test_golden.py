# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.exploits.tasks import TASKS
from tests.golden.record import RECORDED, WORLDS, prices, world_hashes

ROOT = Path(__file__).parents[2]
KEPT = json.loads(RECORDED.read_text())
CONFIGURATIONS = [*ROOT.glob("verl_kernel/config/**/*.yaml"), *ROOT.glob("recipes/**/*.yaml")]
NAMES = sorted(
    {name for path in CONFIGURATIONS for name in re.findall(r"(?:pkg://)?(verl_kernel(?:\.\w+)+)", path.read_text())}
)


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_draws_the_same_tasks_and_talks(world):
    assert world_hashes(world) == KEPT["worlds"][world]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_the_same_price(task):
    assert prices(task) == KEPT["prices"][task]


def test_every_price_that_is_kept_is_of_a_task():
    assert KEPT["prices"].keys() == TASKS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_a_configuration_holds_exists(name):
    module, attribute = name, ""
    while not _is_module(module):
        module, _, attribute = module.rpartition(".")
    assert not attribute or hasattr(importlib.import_module(module), attribute)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
