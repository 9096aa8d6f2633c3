# SPDX-License-Identifier: Apache-2.0
"""Real runs of `python -m verl.trainer.main_ppo`: nothing in their path is a stand-in.

Starting a trainer takes most of the time, so there are four starts: a run that loses its judges and is killed, the
same run resumed as the CPU recipe, and one of each asynchronous trainer.
"""

from pathlib import Path

import pytest

from tests.e2e.losses import lose_and_kill
from verl_kernel.quickstart.build import build
from verl_kernel.quickstart.options import Quickstart, is_complete

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def quickstart():
    """Model, tokenizer and data: the quickstart's where they are made, else of easier tasks and fewer talks; reused.

    After 800 conversations of one or two operations most answers are right; of 2,000 the training takes twice as long.
    """
    full, small = ROOT / "outputs" / "quickstart", ROOT / "outputs" / "quickstart_small"
    if is_complete(full, Quickstart()):
        return full
    options = Quickstart(conversations=800, val_tasks=8, difficulty=Path(__file__).with_name("difficulty.yaml"))
    if not is_complete(small, options):
        build(small, options, lambda step, steps, loss: None)
    return small


@pytest.fixture(scope="session")
def killed(quickstart, tmp_path_factory):
    """The run that loses its judges, whose checkpoint that of `test_cpu_quickstart.py` goes on from."""
    return lose_and_kill(quickstart, tmp_path_factory.mktemp("killed"))
