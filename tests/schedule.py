# SPDX-License-Identifier: Apache-2.0
"""Which tests go to one process together, and in which order, where several share the suite (`pytest -n 2`)."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

LONGEST = (
    "tests/e2e/",
    "tests/env/true_size/test_evaluation.py",
    "tests/exploits/test_corpus.py",
    "tests/env/pool/",
    "tests/benchmarks/",
    "tests/env/conformance/",
    "tests/requirements/",
    "tests/env/judge/",
)
"""Files and folders that begin first, so that no process is left alone with them at the end."""

WHOLE = ("tests/e2e/", "tests/sampler/")
"""Folders whose tests share what takes long to start."""


def rank(item: pytest.Item) -> int:
    """The place of a test's file among the longest, or behind them all."""
    return next((place for place, start in enumerate(LONGEST) if item.nodeid.startswith(start)), len(LONGEST))


class ByFile(LoadScopeScheduling):
    """A file is not divided, since its tests share judges; nor are runs of trainers and tests of one TransferQueue."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # else files with the most tests would come first

    def _split_scope(self, nodeid: str) -> str:
        whole = next((folder for folder in WHOLE if nodeid.startswith(folder)), None)
        return whole or nodeid.partition("::")[0]
