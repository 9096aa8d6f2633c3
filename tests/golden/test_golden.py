# SPDX-License-Identifier: Apache-2.0
import json
import re

import pytest

from tests.env.processes import ROOT, printed
from tests.exploits.tasks import TASKS
from tests.golden.record import RECORDED, RUNS, WORLDS, figures, prices, world_hashes
from tests.tiers import thinned

KEPT = json.loads(RECORDED.read_text())
CONFIGURATIONS = [*ROOT.glob("verl_kernel/config/**/*.yaml"), *ROOT.glob("recipes/**/*.yaml")]
NAMES = sorted(
    {name for path in CONFIGURATIONS for name in re.findall(r"(?:pkg://)?(verl_kernel(?:\.\w+)+)", path.read_text())}
)


@pytest.mark.slow
@pytest.mark.parametrize("world", thinned(WORLDS))
def test_a_world_draws_the_same_tasks_and_talks(world):
    assert world_hashes(world) == KEPT["worlds"][world]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_the_same_price(task):
    assert prices(task) == KEPT["prices"][task]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_kept_run_has_the_same_figures(run):
    # Logarithms differ in their last digit from one machine to the next.
    found, kept = (
        {(kind, name): value for kind, some in all_of_them.items() for name, value in some.items()}
        for all_of_them in (figures(run), KEPT["figures"][run.name])
    )
    unknown = {key for key, value in kept.items() if value is None}
    assert unknown == {key for key, value in found.items() if value is None}
    known = {key: value for key, value in kept.items() if key not in unknown}
    assert {key: value for key, value in found.items() if key not in unknown} == pytest.approx(known, rel=1e-12)


def test_every_price_that_is_kept_is_of_a_task():
    assert KEPT["prices"].keys() == TASKS.keys()


@pytest.mark.exhaustive
@pytest.mark.processes
def test_every_name_that_a_configuration_holds_exists():
    # In a process of its own: a module of vLLM's can be imported on the CPU platform only.
    resolve = "import pkgutil, sys, verl; [pkgutil.resolve_name(name) for name in sys.argv[1:]]"
    printed("-c", resolve, *NAMES, VERL_PLATFORM="cpu")
