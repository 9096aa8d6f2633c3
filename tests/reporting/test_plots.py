# SPDX-License-Identifier: Apache-2.0
import pytest
from matplotlib import pyplot

from verl_kernel.reporting.plots import draw_line, drawing


def drawn(path, high=(2.0, 3.0)):
    with drawing(path, figsize=(3, 2)) as (_, axis):
        draw_line(axis, [1, 2], [1.0, 2.0], ([0.0, 1.0], list(high)), colour="C0", label="a line")
        axis.legend()
    return path.read_text()


def test_equal_data_give_equal_files(tmp_path):
    one = drawn(tmp_path / "one.svg")
    assert "a line" in one
    assert one == drawn(tmp_path / "two.svg")
    assert one != drawn(tmp_path / "three.svg", high=(2.5, 3.0))


def test_an_error_leaves_neither_a_file_nor_an_open_figure(tmp_path):
    before = pyplot.get_fignums()
    with pytest.raises(ZeroDivisionError), drawing(tmp_path / "one.svg"):
        raise ZeroDivisionError
    assert not (tmp_path / "one.svg").exists()
    assert pyplot.get_fignums() == before
