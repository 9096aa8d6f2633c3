# SPDX-License-Identifier: Apache-2.0
"""Figures on pages: every number of README.md has an entry in docs/measured.yaml, and every entry holds."""

import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from verl_kernel.world.kinds import SPLITS

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r"(?<![\w.-])[+-]?\d+(?:\.\d+)*(?:e-?\d+)?(?: ?%)?(?![\d%])")
SKIPPED = re.compile(r"^```.*?^```|`[^`\n]+`|\]\([^)]*\)|^!\[.*?$", re.M | re.S)
"""Blocks and spans of code, targets of links, images: no prose."""
ENTRIES = yaml.safe_load((ROOT / "docs" / "measured.yaml").read_text())
KINDS = {"columns", "line", "by_hand", "structural"}


def folded(text):
    return " ".join(text.split())


def prose(page):
    return folded(SKIPPED.sub(lambda found: " " if found[0].startswith("```") else "`" * len(found[0]), page))


def value(number):
    plain = number.rstrip(" %")
    return float(plain) / 100 if number.endswith("%") else float(plain) if plain.count(".") < 2 else plain


def values(text):
    return [value(found) for found in NUMBER.findall(text)]


def readme():
    return prose((ROOT / "README.md").read_text())


def test_every_number_of_the_readme_has_an_entry():
    text = readme()
    held = [False] * len(text)
    for entry in ENTRIES:
        words = prose(entry["words"])
        for found in re.finditer(re.escape(words), text):
            held[found.start() : found.end()] = [True] * len(words)
    lost = [text[max(0, one.start() - 50) : one.end() + 30] for one in NUMBER.finditer(text) if not held[one.start()]]
    assert not lost, "add to docs/measured.yaml where these come from: " + "; ".join(lost)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["words"][:40])
def test_the_words_of_an_entry_stand_in_the_readme(entry):
    assert prose(entry["words"]) in readme()
    assert len(KINDS & entry.keys()) == 1
    assert entry.keys() <= KINDS | {"words", "file"}
    assert values(prose(entry["words"])), "an entry holds a number"


@pytest.mark.parametrize("entry", [one for one in ENTRIES if "columns" in one], ids=lambda one: one["words"][:40])
def test_means_of_columns_are_what_is_printed(entry):
    rows = [json.loads(line) for line in (ROOT / entry["file"]).read_text().splitlines()]
    for printed, (key, span) in zip(NUMBER.findall(entry["words"]), entry["columns"], strict=True):
        first, last = (int(end) if end else None for end in span.split(":"))
        assert rounded_alike(printed, statistics.fmean(row[key] for row in rows[first:last])), (printed, key)


@pytest.mark.parametrize("entry", [one for one in ENTRIES if "line" in one], ids=lambda one: one["words"][:40])
def test_one_line_of_the_file_holds_all_numbers_of_an_entry(entry):
    lines = [line for line in (ROOT / entry["file"]).read_text().splitlines() if entry["line"] in line]
    assert any(set(values(prose(entry["words"]))) <= set(values(line)) for line in lines), lines


def rounded_alike(printed, exact):
    """Whether a number is what an exact one is when it is printed with as many digits, and no more than half off."""
    digits = len(printed.rstrip(" %").partition(".")[2]) + 2 * printed.endswith("%")
    return abs(value(printed) - exact) <= 0.5 * 10.0**-digits + 1e-9


@pytest.mark.parametrize(("printed", "exact", "holds"), [
    ("63 %", 0.6344, True), ("63 %", 0.6356, False), ("+0.307", 0.3074, True), ("-0.094", 0.094, False),
    ("1.18", 1.181056, True), ("6", 5.4, False),
])  # fmt: skip
def test_a_printed_number_is_an_exact_one_rounded(printed, exact, holds):
    assert rounded_alike(printed, exact) == holds


def test_the_quickstarts_page_has_the_means_of_its_steps():
    rows = [json.loads(line) for line in (ROOT / "recipes/cpu_quickstart/steps.jsonl").read_text().splitlines()]
    page = (ROOT / "recipes/cpu_quickstart/README.md").read_text()
    for key in (
        "critic/score/mean",
        "kernel/correct_rate",
        "kernel/fast@1.2",
        "kernel/hack_rate",
        "kernel/novel_correct",
    ):
        first, last = (statistics.fmean(row[key] for row in some) for some in (rows[:5], rows[-5:]))
        assert f"| {first:.2f} | {last:.2f} |" in page


def test_the_quickstarts_page_has_its_validation():
    folder = ROOT / "recipes/cpu_quickstart"
    rows = [json.loads(line) for line in (folder / "validation.jsonl").read_text().splitlines()]
    page = (folder / "README.md").read_text()
    for split in SPLITS:
        before, after = (row["acc"] for row in rows if row["split"] == split)
        assert f"| `{split}` | {before:.2f} | {after:.2f} |" in page


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["stale", "ada"])
def test_the_methods_tables_are_made_of_their_rows(name, tmp_path):
    methods = ROOT / "docs" / "methods"
    shutil.copy(methods / f"{name}.jsonl", tmp_path)
    script = ROOT / "benchmarks" / "methods" / f"{name}_figure.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], cwd=ROOT, check=True, capture_output=True)
    made = (tmp_path / f"{name}.md").read_text()
    assert made == (methods / f"{name}.md").read_text()
    assert [
        block for block in made.strip().split("\n\n") if block not in (ROOT / "docs/notes/methods.md").read_text()
    ] == []
