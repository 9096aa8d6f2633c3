# SPDX-License-Identifier: Apache-2.0
"""Whole kernels through Triton's compiler and the executor: results beside torch's, prices, and the page."""

import functools
import json
import re
from pathlib import Path

import pytest

from tests.env.processes import ROOT, printed

PROGRAMS = re.findall(r"^@program\ndef (\w+)", Path(__file__).with_name("programs.py").read_text(), re.M)
pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a module of this folder tells by name, from one run in a process of its own."""

    @functools.cache
    def told(name):
        cache = str(tmp_path_factory.mktemp("triton"))
        return json.loads(printed("-m", f"tests.env.executor.{name}", TRITON_CACHE_DIR=cache).splitlines()[-1])

    return told


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_torch_does(told, name):
    assert told("programs")[name] is None


def test_the_example_of_the_page_runs(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "executor.md").read_text(), re.M | re.S)
    (tmp_path / "example.py").write_text(example)
    printed(tmp_path / "example.py", TRITON_CACHE_DIR=str(tmp_path))


ORDERS = [
    ("stride 1", "stride 2", 1.3, 2.1), ("stride 2", "stride 8", 2, 5), ("half of it masked out", "stride 1", 1.8, 2.2),
    ("a half", "half of it masked out", 1, 1.15), ("stride 1", "spilled", 2, 20), ("16 blocks", "1 blocks", 10, 20),
    ("512 blocks", "16 blocks", 5, 32), ("1 of long rows", "2 of long rows", 1.8, 2.2),
    ("1 of short rows", "2 of short rows", 1, 1.5), ("half", "half, small tiles", 1.5, 10),
    ("half", "naive half", 10, 200), ("half", "tf32", 1.3, 3), ("tf32", "tf32x3", 1.5, 3.5), ("tf32", "ieee", 1.5, 10),
    ("8 integer", "256 integer", 20, 40), ("256 float", "256 integer", 4, 16), ("256 float", "256 exp", 3, 12),
    ("256 integer", "256 division", 2, 10), ("one row for all", "a row for each", 1.3, 1.6),
    ("gather in order", "gather at random", 1.2, 9), ("gather few", "gather in order", 1.1, 1.6),
    ("copied", "transposed", 1, 1.3), ("large, twice near", "large, twice far", 1.6, 2),
    ("small, twice near", "small, twice far", 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("cheaper, dearer, least, most", ORDERS)
def test_a_kernel_is_cheaper_than_another(told, cheaper, dearer, least, most):
    """As on every GPU."""
    prices = told("priced")
    assert least <= prices[dearer] / prices[cheaper] * (1 + 1e-9)
    assert prices[dearer] <= most * prices[cheaper]
