# SPDX-License-Identifier: Apache-2.0
"""The note about the clock shows the constants as they are."""

from pathlib import Path

from verl_kernel.env.machine.constants import CONSTANTS

PAGE = Path(__file__).parents[3] / "docs" / "notes" / "clock.md"


def test_the_page_has_all_constants():
    rows = [line for line in PAGE.read_text().partition("## Constants")[2].partition("\n## ")[0].splitlines()]
    wanted = [f"| `{name}` | {one.value:g} | {one.meaning} | {one.source} |" for name, one in CONSTANTS.items()]
    assert [row for row in rows if row.startswith("| `")] == wanted
