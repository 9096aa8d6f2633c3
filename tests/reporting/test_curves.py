# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.reporting.curves import PANELS, plot_run

pyplot = pytest.importorskip("matplotlib.pyplot")


def drawn(monkeypatch, tmp_path, steps, validations):
    """Labels by panel."""
    kept = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    plot_run(steps, validations, tmp_path / "run.png", "a $run$ of _its_ own")
    monkeypatch.undo()
    panels = {axis.get_title(): [line.get_label() for line in axis.lines] for axis in kept[0].axes}
    pyplot.close(kept[0])
    return panels


def test_every_panel_shows_what_was_logged(monkeypatch, tmp_path):
    known = {
        "critic/score/mean": 0.5,
        "kernel/turn_1/reward/mean": 0.2,
        "kernel/turn_2/reward/mean": 0.3,
        "actor/entropy": None,
    }
    panels = drawn(monkeypatch, tmp_path, [{"step": 1, **known}, {"step": 2}], [{"step": 0, "held_out/reward": 0.1}])
    assert list(panels) == list(PANELS)
    assert panels["reward"] == [*list(known)[:3], "held out: held_out/reward"]
    assert panels["entropy"] == []
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
