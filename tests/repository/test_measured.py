# SPDX-License-Identifier: Apache-2.0
"""Figures on pages: every number of README.md has an entry in docs/measured.yaml, and every entry holds."""

import json
import re
import statistics

import pytest
import yaml

from tests.repository.pages import PAGES, ROOT
from verl_kernel.generated_tasks.kinds import SPLITS

NUMBER = re.compile(r"(?<![\w.-])[+-]?\d+(?:\.\d+)*(?:e-?\d+)?(?: ?%)?(?![\d%])")
SKIPPED = re.compile(r"^```.*?^```|`[^`\n]+`|\]\([^)]*\)|^!\[.*?$", re.M | re.S)
"""Blocks and spans of code, targets of links, images: no prose."""
ENTRIES = yaml.safe_load((ROOT / "docs" / "measured.yaml").read_text())
KINDS = {"line", "by_hand", "structural"}
QUICKSTART = ROOT / "data" / "quickstart"
QUICKSTART_PAGE = PAGES["recipes/cpu_quickstart/README.md"]


def prose(text):
    spaces = SKIPPED.sub(lambda found: " " if found[0].startswith("```") else "`" * len(found[0]), text)
    return " ".join(spaces.split())


def value(number):
    plain = number.rstrip(" %")
    return float(plain) / 100 if number.endswith("%") else float(plain) if plain.count(".") < 2 else plain


def values(text):
    return {value(found) for found in NUMBER.findall(text)}


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def with_entries(kind):
    entries = [entry for entry in ENTRIES if kind in entry]
    return pytest.mark.parametrize("entry", entries, ids=[entry["words"][:40] for entry in entries])


README = prose(PAGES["README.md"])


def test_every_number_of_the_readme_has_an_entry():
    held = [False] * len(README)
    for entry in ENTRIES:
        words = prose(entry["words"])
        for found in re.finditer(re.escape(words), README):
            held[found.start() : found.end()] = [True] * len(words)
    numbers = [found for found in NUMBER.finditer(README) if not held[found.start()]]
    lost = [README[max(0, found.start() - 50) : found.end() + 30] for found in numbers]
    assert not lost, "add to docs/measured.yaml where these come from: " + "; ".join(lost)


@with_entries("words")
def test_the_words_of_an_entry_stand_in_the_readme(entry):
    assert prose(entry["words"]) in README
    assert len(KINDS & entry.keys()) == 1
    assert entry.keys() <= KINDS | {"words", "file"}
    assert values(prose(entry["words"])), "an entry holds a number"


@with_entries("line")
def test_one_line_of_the_file_holds_all_numbers_of_an_entry(entry):
    lines = [line for line in (ROOT / entry["file"]).read_text().splitlines() if entry["line"] in line]
    assert any(values(prose(entry["words"])) <= values(line) for line in lines), lines


def is_rounded(printed, exact):
    """Whether a number is what an exact one is when it is printed with as many digits, and no more than half off."""
    digits = len(printed.rstrip(" %").partition(".")[2]) + 2 * printed.endswith("%")
    return abs(value(printed) - exact) <= 0.5 * 10.0**-digits + 1e-9


@pytest.mark.parametrize(("printed", "exact", "holds"), [
    ("63 %", 0.6344, True), ("63 %", 0.6356, False), ("+0.307", 0.3074, True), ("-0.094", 0.094, False),
    ("1.18", 1.181056, True), ("6", 5.4, False),
])  # fmt: skip
def test_a_printed_number_is_an_exact_one_rounded(printed, exact, holds):
    assert is_rounded(printed, exact) == holds


@pytest.mark.parametrize("key", [
    "critic/score/mean", "kernel/correct_rate", "kernel/fast@1.2", "kernel/hack_rate", "kernel/novel_correct",
])  # fmt: skip
def test_the_quickstarts_page_has_the_means_of_its_steps(key):
    rows = rows_of(QUICKSTART / "steps.jsonl")
    first, last = (statistics.fmean(row[key] for row in some) for some in (rows[:5], rows[-5:]))
    assert f"| {first:.2f} | {last:.2f} |" in QUICKSTART_PAGE


@pytest.mark.parametrize("split", SPLITS)
def test_the_quickstarts_page_has_its_validation(split):
    rows = rows_of(QUICKSTART / "validation.jsonl")
    before, after = (row["acc"] for row in rows if row["split"] == split)
    assert f"| `{split}` | {before:.2f} | {after:.2f} |" in QUICKSTART_PAGE
