# SPDX-License-Identifier: Apache-2.0
import re

import pytest

from tests.figures.profiles import LAUNCH, PROFILE, measured, profiled
from verl_kernel.env import GPUS
from verl_kernel.reporting.profile_page import write_profile_page
from verl_kernel.reporting.roofline import Work, roofline

SOURCE = "\n".join(f"line_{number} < 1" for number in range(1, 20))


@pytest.fixture
def page(tmp_path):
    return lambda result: write_profile_page(tmp_path / "page.html", result, SOURCE).read_text()


def test_the_page_has_all_kernels_changes_and_wasteful_lines(page):
    text = page(profiled())
    assert all(f"<h2>{name}</h2>" in text for name in ("softmax", "other", "third"))
    assert "move x between memory and the kernel only once (line 14)" in text
    assert "do the work of other in the same launch" in text
    assert "line_14 &lt; 1" in text  # the wasteful line


def test_measured_times_stand_beside_predicted_ones(page):
    assert "measured" not in page(profiled())
    text = page(measured())
    assert "Forward, measured" in text
    assert re.search(r"gpu__time_duration, measured</dt><dd>38.0 us", text)


def test_a_candidates_names_stay_text(page):
    evil = LAUNCH.model_copy(update={"name": "<script>alert(1)</script>"})
    text = page(profiled(profile=PROFILE.model_copy(update={"launches": (evil,)})))
    assert "<script" not in text
    assert "default-src 'none'" in text


def test_a_kernel_lies_on_the_roof_that_it_reaches():
    chart = roofline(GPUS["h100"], [Work("k", 67e9, 1e6, 1.0)])  # 67 TFLOP/s of plain float32
    roof, point = chart.lines[0], chart.lines[-1].dots[0]
    assert point.y == float(roof.path.split()[-1].split(",")[1])


def test_memory_and_arithmetic_meet_at_the_ridge():
    gpu = GPUS["h100"]
    ridge = gpu.tflops * 1e12 / (gpu.bandwidth_gbs * 1e9)
    chart = roofline(gpu, [Work("k", ridge * 1e6, 1e6, ridge * 1e6 / (gpu.tflops * 1e12) * 1e3)])
    assert f"{chart.lines[-1].dots[0].x:g},{chart.lines[-1].dots[0].y:g}" in chart.lines[0].path.split()
