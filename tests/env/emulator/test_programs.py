# SPDX-License-Identifier: Apache-2.0
"""Whole kernels through Triton's compiler and the emulator: results beside torch's, prices, and the page."""

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
        return json.loads(printed("-m", f"tests.env.emulator.{name}", TRITON_CACHE_DIR=cache).splitlines()[-1])

    return told


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_torch_does(told, name):
    assert told("programs")[name] is None


def test_the_example_of_the_page_runs(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "emulator.md").read_text(), re.M | re.S)
    (tmp_path / "example.py").write_text(example)
    printed(tmp_path / "example.py", TRITON_CACHE_DIR=str(tmp_path))


ORDERS = [
    ("half", "tf32", 1.3, 3), ("tf32", "tf32x3", 1.5, 3.5), ("tf32", "ieee", 1.5, 10), ("copied", "transposed", 1, 1.3),
    ("8 integer", "256 integer", 20, 40), ("256 float", "256 integer", 4, 16), ("256 float", "256 exp", 3, 12),
    ("256 integer", "256 division", 2, 10),
]  # fmt: skip


@pytest.mark.parametrize("cheaper, dearer, least, most", ORDERS)
def test_a_kernel_is_cheaper_than_another(told, cheaper, dearer, least, most):
    """As on every GPU; how memory is used and products are tiled: tests/env/clocks/forward."""
    prices = told("priced")
    assert least <= prices[dearer] / prices[cheaper] * (1 + 1e-9)
    assert prices[dearer] <= most * prices[cheaper]
