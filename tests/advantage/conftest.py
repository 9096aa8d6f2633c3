# SPDX-License-Identifier: Apache-2.0
"""Batches without a token, of which property tests draw many one after another, end no run here."""

from math import inf

import pytest


@pytest.fixture(scope="module", autouse=True)
def endless_runs(request):
    with pytest.MonkeyPatch.context() as patch:
        if not request.module.__name__.endswith("test_registry"):
            patch.setattr("verl_kernel.advantage.registry.MOST_EMPTY", inf)
        yield
