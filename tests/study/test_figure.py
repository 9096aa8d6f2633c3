# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from matplotlib import pyplot

from recipes.cpu_study.figure import plot_effects
from tests.study.test_comparisons import ONE, rows

DATA = [*rows("a", {0: 0.4, 1: 0.6, 2: 0.5}), *rows("b", {0: 0.3, 1: 0.3, 2: 0.3})]


def test_an_effect_is_drawn_with_seeds_and_interval(tmp_path: Path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    plot_effects(DATA, [ONE], tmp_path / "effects.png", "r")
    assert (tmp_path / "effects.png").stat().st_size > 1000
    (axis,) = drawn[0].axes
    lines = {line.get_label(): [round(float(x), 3) for x in line.get_xdata()] for line in axis.lines}
    assert lines["a seed"] == [0.1, 0.3, 0.2]
    assert lines["expected"] == [0.1]
    assert lines["mean"] == [0.2]
    assert lines["95 % interval"] == [-0.048, 0.448]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["a against b: correct"]


def test_without_a_pair_of_runs_there_is_no_figure(tmp_path: Path):
    plot_effects(DATA[:4], [ONE], tmp_path / "effects.png", "r")
    assert not (tmp_path / "effects.png").exists()
