# SPDX-License-Identifier: Apache-2.0
"""bench_clock on two small programs, and on published ones where they are at hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.clock.agreement import Agreement, factor, ranks
from benchmarks.clock.references import forward_events, read_published

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "kernelbench"
PROGRAM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.rand(1 << 16, 1 << 12)]

def get_init_inputs():
    return [1 << 12]
"""
FAILS = PROGRAM.format(result="x if x.sum().item() > 0 else -x")


def bench(folder, *options):
    command = [sys.executable, ROOT / "benchmarks" / "bench_clock.py", folder, folder / "times.json", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "level1").mkdir()
    for name, result in (("1_relu", "torch.relu(x)"), ("2_layer", "self.layer(x)"), ("12_old", "x + 1")):
        (tmp_path / "level1" / f"{name}.py").write_text(PROGRAM.format(result=result))
    times = {"1_relu.py": 0.712, "2_layer.py": {"mean": 43.0, "std": 0.1}, "12_old.py": 1.0, "3_lacking.py": 1.0}
    (tmp_path / "times.json").write_text(json.dumps({"level1": times}))
    return tmp_path


def test_programs_of_gigabytes_are_predicted_from_their_shapes(folder):
    done = bench(folder, "--figure", folder / "ratios.svg")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "1_relu" in done.stdout
    assert "2_layer" in done.stdout
    assert "12_old" not in done.stdout
    assert "arithmetic" in done.stdout
    assert "met" in done.stdout
    assert "<svg" in (folder / "ratios.svg").read_text()


def test_a_program_that_reads_values_has_no_prediction(folder):
    (folder / "level1" / "1_relu.py").write_text(FAILS)
    done = bench(folder)
    assert done.returncode == 1
    assert "level1/1_relu.py: no prediction" in done.stdout
    assert "2_layer" in done.stdout


def test_a_missed_bar_is_told(folder):
    (folder / "times.json").write_text(json.dumps({"level1": {"1_relu.py": 0.1, "2_layer.py": 43.0}}))
    done = bench(folder)
    assert done.returncode == 1
    assert "missed" in done.stdout


def test_agreement_by_hand():
    found = Agreement.of([(1.0, 1.0), (2.0, 1.5), (3.0, 6.0), (4.0, 5.0)])
    assert found.spearman == pytest.approx(0.8)
    assert found.median_ratio == pytest.approx(0.9)
    assert found.within == (0.5, 0.75, 1.0)
    assert found.count == 4
    assert ranks([3.0, 1.0, 3.0]) == [2.5, 1.0, 2.5]
    assert factor(1.0, 4.0) == factor(4.0, 1.0) == 4.0


def test_the_bias_of_a_layer_is_fused_and_nothing_is_read(folder):
    one, two = read_published(folder, folder / "times.json", {("level1", 12)})
    assert (one.ms, two.ms) == (0.712, 43.0)
    assert [event.name for event in forward_events(two.path)] == ["aten::addmm"]


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="published programs and times are not part of the project")
def test_the_model_reaches_its_bars():
    times = PUBLISHED / "h100_eager_ms.json"
    command = [sys.executable, ROOT / "benchmarks" / "bench_clock.py", PUBLISHED, times]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("│ met ") == 4  # two levels: how near times are, and how many the intervals hold
    assert "missed" not in done.stdout
    assert "no prediction" not in done.stdout
