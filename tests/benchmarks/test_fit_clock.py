# SPDX-License-Identifier: Apache-2.0
"""fit_clock on programs whose times the model itself has made, and what the page says of its result."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.clock.fitting import Clock, fit, fitted_names, loss, starting_point, using
from benchmarks.clock.references import Published
from benchmarks.fit_clock import tables
from tests.benchmarks.test_bench_clock import PUBLISHED
from verl_kernel.env.machine.constants import CONSTANTS, constant
from verl_kernel.env.machine.machine import GPUS, Machine

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "clock" / "fit.json"
MACHINE = Machine(GPUS["h100"], convolution_tf32=True)
PROGRAM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return {forward}

def get_inputs():
    return [torch.rand({x}), torch.rand({y})]

def get_init_inputs():
    return []
"""
FORWARDS = {
    "1_relu": ("torch.relu(x)", "1 << 16, 1 << 12", "1"),
    "2_relu": ("torch.relu(x)", "1 << 14, 1 << 12", "1"),
    "3_product": ("x @ y", "4096, 4096", "4096, 4096"),
    "4_pool": ("torch.nn.functional.max_pool2d(x, 3, 1)", "16, 64, 512, 512", "1"),
    "5_pool": ("torch.nn.functional.max_pool2d(x, 9, 1)", "16, 64, 512, 512", "1"),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, (forward, x, y) in FORWARDS.items():
        (folder / f"{name}.py").write_text(PROGRAM.format(forward=forward, x=x, y=y))
    return [Published("level1", folder / f"{name}.py", 1.0) for name in FORWARDS]


def timed(programs, values):
    times = Clock(programs, MACHINE).times(values)
    return [Published(one.level, one.path, ms) for one, ms in zip(programs, times, strict=True)]


def test_a_fit_finds_the_values_that_made_the_times(programs):
    truth = {"contiguous": 0.7, "fma": 0.6, "window_output": 200.0, "window_element": 45.0}
    found = fit(Clock(timed(programs, truth), MACHINE), list(truth))
    assert found == pytest.approx(truth, rel=0.02)


def test_a_fit_does_not_know_the_committed_values(programs):
    known = timed(programs, {"contiguous": 0.7})
    found = fit(Clock(known, MACHINE), ["contiguous"])
    with using({"contiguous": 0.123}):
        assert fit(Clock(known, MACHINE), ["contiguous"]) == found


def test_values_count_while_they_are_used_and_never_afterwards():
    before = constant("fma")
    with pytest.raises(RuntimeError), using({"fma": 0.5}):
        assert constant("fma") == 0.5
        raise RuntimeError
    assert constant("fma") == before


def test_a_constant_moves_the_programs_that_it_prices(programs):
    clock = Clock(programs, MACHINE)
    committed = {name: constant(name) for name in fitted_names()}
    moved = {name: clock.moved(name, committed) for name in ("fma", "window_element", "norm")}
    assert moved == {"fma": 1, "window_element": 2, "norm": 0}


def test_the_loss_is_the_same_for_too_long_and_too_short():
    assert loss([2.0], [1.0]) == pytest.approx(loss([1.0], [2.0]))
    assert loss([1.0, 3.0], [1.0, 3.0]) == 0.0


def test_constants_of_level_1_start_at_one_value_for_each_kind():
    start = starting_point(fitted_names())
    assert set(start.values()) == {0.5, 1000.0, 50.0}
    assert len(start) == 15
    assert not {name for name in start if "level 3" in CONSTANTS[name].source}


def test_the_result_that_is_kept_is_of_the_committed_constants():
    kept = json.loads(RESULT.read_text())["constants"]
    assert {name: one["committed"] for name, one in kept.items()} == {name: constant(name) for name in fitted_names()}


def test_the_page_shows_the_result_that_is_kept():
    page = (ROOT / "docs" / "notes" / "clock.md").read_text()
    assert [block for block in tables(json.loads(RESULT.read_text())).strip().split("\n\n") if block not in page] == []


def test_the_page_names_the_constants_that_no_program_tests():
    page = (ROOT / "docs" / "notes" / "clock.md").read_text()
    (paragraph,) = [block for block in page.split("\n\n") if block.startswith("No program of levels 1 and 2 sees")]
    assert set(re.findall(r"`(\w+)`", paragraph)) == set(json.loads(RESULT.read_text())["unmoved"])


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="published programs and times are not part of the project")
def test_the_result_is_made_again(tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "fit_clock.py", PUBLISHED, PUBLISHED / "h100_eager_ms.json"]
    subprocess.run([*command, "--out", tmp_path / "fit.json"], cwd=ROOT, check=True, capture_output=True)
    made, kept = (json.loads(path.read_text()) for path in (tmp_path / "fit.json", RESULT))
    assert (made["agreement"], made["unmoved"]) == (kept["agreement"], kept["unmoved"])
    for name, one in kept["constants"].items():
        assert made["constants"][name] == pytest.approx(one, rel=0.02), name
