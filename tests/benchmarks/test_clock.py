# SPDX-License-Identifier: Apache-2.0
"""The simulated clock against published times: agreement, intervals, and the fit of its constants."""

import json
import re
from math import exp
from pathlib import Path

import pytest

from benchmarks.clock.convolutions import spread
from benchmarks.clock.fitting import Clock, fit, fitted_names, loss, starting_point, using
from benchmarks.clock.intervals import coverage, half_widths, quantile
from benchmarks.clock.references import Prediction, Published, forward_events, read_published
from benchmarks.fit_clock import tables
from tests.benchmarks.scripts import PUBLISHED, ROOT, TIMES, bench, needs_published, program
from verl_kernel.env.gpus import GPUS
from verl_kernel.env.machine.constants import CONSTANTS, constant
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.machine.uncertainty import HALF_WIDTHS
from verl_kernel.env.trace import Step, TraceEvent

RESULT = ROOT / "benchmarks" / "clock" / "fit.json"
H100, MACHINE = MachineModel.of("h100"), MachineModel(GPUS["h100"], convolution_tf32=True)
LARGE = "1 << 16, 1 << 12"
EVENTS = {
    "memory": [TraceEvent("op", "a", steps=(Step(10**9),))],
    "mixed memory": [TraceEvent("op", "b", steps=(Step(10**9, access="mixed"),))],
}
COPY = TraceEvent("op", "aten::copy_", steps=(Step(10**9),))
FORWARDS = {
    "1_relu": ("torch.relu(x)", LARGE, "1"),
    "2_relu": ("torch.relu(x)", "1 << 14, 1 << 12", "1"),
    "3_product": ("x @ y", "4096, 4096", "4096, 4096"),
    "4_pool": ("torch.nn.functional.max_pool2d(x, 3, 1)", "16, 64, 512, 512", "1"),
    "5_pool": ("torch.nn.functional.max_pool2d(x, 9, 1)", "16, 64, 512, 512", "1"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "level1").mkdir()
    for name, forward in (("1_relu", "torch.relu(x)"), ("2_layer", "self.layer(x)"), ("12_old", "x + 1")):
        (tmp_path / "level1" / f"{name}.py").write_text(program(forward, LARGE, width="1 << 12"))
    times = {"1_relu.py": 0.712, "2_layer.py": {"mean": 43.0, "std": 0.1}, "12_old.py": 1.0, "3_lacking.py": 1.0}
    (tmp_path / "times.json").write_text(json.dumps({"level1": times}))
    return tmp_path


@pytest.mark.slow
def test_programs_of_gigabytes_are_predicted_from_their_shapes(folder):
    done = bench("bench_clock", folder, folder / "times.json", "--figure", folder / "ratios.svg")
    assert done.returncode == 0, done.stderr + done.stdout
    assert [word for word in ("1_relu", "2_layer", "arithmetic", "met") if word not in done.stdout] == []
    assert "12_old" not in done.stdout
    assert "<svg" in (folder / "ratios.svg").read_text()


@pytest.mark.exhaustive
def test_a_program_that_reads_values_has_no_prediction(folder):
    (folder / "level1" / "1_relu.py").write_text(program("x if x.sum().item() > 0 else -x", LARGE))
    done = bench("bench_clock", folder, folder / "times.json")
    assert done.returncode == 1
    assert "level1/1_relu.py: no prediction" in done.stdout
    assert "2_layer" in done.stdout


@pytest.mark.exhaustive
def test_a_missed_bar_is_told(folder):
    (folder / "times.json").write_text(json.dumps({"level1": {"1_relu.py": 0.1, "2_layer.py": 43.0}}))
    done = bench("bench_clock", folder, folder / "times.json")
    assert done.returncode == 1
    assert "missed" in done.stdout


def test_the_bias_of_a_layer_is_fused_and_nothing_is_read(folder):
    one, two = read_published(folder, folder / "times.json", {("level1", 12)})
    assert (one.ms, two.ms) == (0.712, 43.0)
    assert [event.name for event in forward_events(two.path)] == ["aten::addmm"]


@pytest.mark.exhaustive
@pytest.mark.slow
@needs_published
def test_the_model_reaches_its_bars():
    done = bench("bench_clock", PUBLISHED, TIMES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("│ met ") == 4  # two levels: how near times are, and how many the intervals hold
    assert "missed" not in done.stdout
    assert "no prediction" not in done.stdout


def slower_by(number: int, events: list[TraceEvent], slower: float) -> Prediction:
    ours = time_ms(events, H100)
    return Prediction(Published("level2", Path(f"{number}_a.py"), 1.0), events, ours, ours + slower)


def off_by(error, name="memory"):
    """A prediction whose published time is so far off in its logarithm."""
    return slower_by(1, EVENTS[name], time_ms(EVENTS[name], H100) * (exp(error) - 1))


def test_a_quantile_needs_nine_errors():
    assert quantile([0.1] * 8) is None
    assert quantile([0.1 * n for n in range(1, 10)]) == pytest.approx(0.9)
    assert quantile([0.1 * n for n in range(1, 20)]) == pytest.approx(1.8)


def test_a_small_class_has_the_width_of_all_programs():
    found = [off_by(0.1 * (-1) ** n) for n in range(20)]
    assert half_widths([*found, off_by(0.05, "mixed memory")], H100)["mixed memory"] == (1, pytest.approx(0.1))
    assert half_widths([*found, off_by(0.3, "mixed memory")], H100)["mixed memory"] == (1, pytest.approx(0.3))


@pytest.mark.parametrize(("outside", "bar"), [(0, "missed"), (1, "met"), (3, "missed")])
def test_intervals_hold_as_many_as_they_say(outside, bar):
    table = coverage([off_by(HALF_WIDTHS["memory"] + 0.01)] * outside + [off_by(0.0)] * (10 - outside), H100)
    assert [*table.columns[-1].cells] == [bar]


def convolution(size: int) -> TraceEvent:
    return TraceEvent("op", "aten::convolution", steps=(Step(size),))


def test_what_is_left_is_all_that_the_rest_does_not_explain():
    alike = [slower_by(1, [convolution(10**9), COPY], 0.0), slower_by(2, [COPY, convolution(10**9)], 1.0)]
    table = spread([*alike, slower_by(3, [convolution(10**8)], 0.0), slower_by(4, [COPY], 0.0)], H100)
    (names,), (predicted,), (left,) = (list(column.cells) for column in table.columns)
    assert names == "2/1, 2/2"
    ms = time_ms([convolution(10**9)], H100)
    assert predicted == f"{ms:.2f}"
    assert left == f"{ms:.2f}, {ms + 1:.2f}"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, words in FORWARDS.items():
        (folder / f"{name}.py").write_text(program(*words))
    return [Published("level1", folder / f"{name}.py", 1.0) for name in FORWARDS]


def timed(programs, values):
    times = Clock(programs, MACHINE).times(values)
    return [Published(one.level, one.path, ms) for one, ms in zip(programs, times, strict=True)]


def test_a_fit_finds_the_values_that_made_the_times(programs):
    truth = {"contiguous": 0.7, "fma": 0.6, "window_output": 200.0, "window_element": 45.0}
    assert fit(Clock(timed(programs, truth), MACHINE), list(truth)) == pytest.approx(truth, rel=0.02)


@pytest.mark.exhaustive
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


def test_the_page_shows_the_kept_result_and_what_is_not_tested():
    page, kept = (ROOT / "docs" / "notes" / "clock.md").read_text(), json.loads(RESULT.read_text())
    assert [block for block in tables(kept).strip().split("\n\n") if block not in page] == []
    (paragraph,) = [block for block in page.split("\n\n") if block.startswith("No program of levels 1 and 2 sees")]
    assert set(re.findall(r"`(\w+)`", paragraph)) == set(kept["unmoved"])


@pytest.mark.exhaustive
@pytest.mark.slow
@needs_published
def test_the_result_is_made_again(tmp_path):
    done = bench("fit_clock", PUBLISHED, TIMES, "--out", tmp_path / "fit.json")
    assert done.returncode == 0, done.stderr
    made, kept = (json.loads(path.read_text()) for path in (tmp_path / "fit.json", RESULT))
    assert (made["agreement"], made["unmoved"]) == (kept["agreement"], kept["unmoved"])
    for name, one in kept["constants"].items():
        assert made["constants"][name] == pytest.approx(one, rel=0.02), name
