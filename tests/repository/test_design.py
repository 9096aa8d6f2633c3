# SPDX-License-Identifier: Apache-2.0
"""The design page names places that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_TABLE = re.search(r"^## Where things stand$(.*?)^## ", (ROOT / "docs/design.md").read_text(), re.M | re.S)
PLACES = re.findall(r"`((?:verl_kernel|tests)/[^`]+)`", _TABLE[1] if _TABLE else "")


def test_the_table_of_places_is_there():
    assert len(PLACES) > 20


@pytest.mark.parametrize("place", PLACES)
def test_a_place_exists(place):
    assert (ROOT / place).exists()


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_a_folder_where_it_says_so(place):
    assert (ROOT / place).is_dir() == place.endswith("/")
