# SPDX-License-Identifier: Apache-2.0
"""Long lists of cases, of which `make test` runs some and `make test-all` the rest."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int = 2) -> list[Any]:
    """The first of every so many cases as it is, and the others marked `exhaustive`."""
    return [
        case if number % every == 0 else pytest.param(case, marks=pytest.mark.exhaustive)
        for number, case in enumerate(cases)
    ]
