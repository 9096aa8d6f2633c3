# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
import re

import pytest

from tests.figures.profiles import LAUNCH, PROFILE, measured, profiled
from tests.reporting.elements import Elements
from tests.reporting.runs import kernel, write_lines
from verl_kernel.env import gpu_named
from verl_kernel.reporting.page import KERNELS_SHOWN, write_page
from verl_kernel.reporting.profile_page import write_profile_page
from verl_kernel.reporting.roofline import Work, roofline

STEPS = [{"step": n, "critic/score/mean": float(n), "kernel/simulated_clock": 1.0} for n in (1, 2)]
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)> & '\" {{ 7 * 7 }} {% raw %}"


def page(folder, steps=STEPS, validations=()):
    return Elements(write_page(folder, steps, validations).read_text(encoding="utf-8"))


@pytest.mark.parametrize("field", ["code", "reference", "task_id", "timing_source"])
def test_what_a_policy_wrote_is_text(tmp_path, field):
    write_lines(tmp_path / "kernels.jsonl", kernel(1, **{field: HOSTILE}) if field != "task_id" else kernel(1, HOSTILE))
    elements = page(tmp_path)
    assert HOSTILE in elements.text
    assert not {tag for tag, _ in elements.found} & {"script", "img", "iframe", "object", "link"}
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]


def test_a_configuration_is_text_too(tmp_path):
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text('algorithm: {adv_estimator: "<script>alert(1)</script>"}')
    elements = page(tmp_path)
    assert "<script>alert(1)</script>" in elements.text
    assert "script" not in [tag for tag, _ in elements.found]


def test_a_source_that_is_no_unicode_can_be_written(tmp_path):
    line = '{"step": 1, "task_id": "t", "turn": 1, "speedup": 2, "code": "x = \\ud800"}'
    write_lines(tmp_path / "kernels.jsonl", line)
    elements = page(tmp_path)
    assert "x = \\ud800" in elements.text
    assert "2x" in elements.text


def test_the_page_draws_its_curves_and_asks_nobody_for_anything(tmp_path):
    text = write_page(tmp_path, STEPS, ()).read_text()
    elements = Elements(text)
    assert [attributes["points"] for tag, attributes in elements.found if tag == "polyline"]
    assert not [value for _, a in elements.found for name, value in a.items() if name in ("src", "href")]
    (policy,) = [a["content"] for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"]
    style = re.search("<style>(.*?)</style>", text, re.S)[1]
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy
    assert "unsafe" not in policy


def test_the_page_begins_with_what_changed(tmp_path):
    steps = [{"step": n, "kernel/correct_rate": n / 4, "critic/score/mean": float(n)} for n in (1, 2)]
    text = " ".join(page(tmp_path, steps).text.split())
    assert "correct rate50% from 25%" in text
    assert "reward2.00 from 1.00" in text


def test_the_page_tells_what_changed_and_shows_the_best_kernels(tmp_path):
    facts = {"kernel_ms": 0.00401}
    kernels = [kernel(n, f"task{n:02}", 1.0 + n, code=f"code{n:02}", **facts) for n in range(KERNELS_SHOWN + 3)]
    write_lines(tmp_path / "kernels.jsonl", *kernels)
    text = page(tmp_path, validations=[{"step": 0, "held_out/acc": 0.25}, {"step": 2, "held_out/acc": 0.75}]).text
    assert "x 2.00" in text
    assert "+0.500" in text
    assert "Kernel, 0.00401 ms" in text
    assert tmp_path.name in text
    assert text.index("code12") < text.index("code03")
    assert "code02" not in text


def test_a_run_killed_before_its_first_step_has_a_page(tmp_path):
    text = page(tmp_path, steps=[]).text
    assert "fewer than two steps" in text
    assert "None is recorded" in text
    assert "validated nothing" in text


def test_the_page_says_how_many_best_kernels_are_novel(tmp_path):
    kernels = [kernel(n, f"task{n:02}", 1.0 + n, novel=n % 3 == 0) for n in range(KERNELS_SHOWN + 2)]
    write_lines(tmp_path / "kernels.jsonl", *kernels, kernel(1, "unknown", 9.0, novel=None))
    text = " ".join(page(tmp_path).text.split())
    assert f"The best kernels of 4 of {KERNELS_SHOWN + 2} tasks are novel" in text
    assert "turn 1, novel, times" in text
    assert "turn 1, in the cold start, times" in text
    assert "turn 1, times" in text


def test_the_page_shows_novelty_where_it_was_measured(tmp_path):
    steps = [{"step": n, "kernel/novel": n / 4, "kernel/novel_correct": n / 2} for n in (1, 2)]
    held_out = [{"step": n, "held_out/novel_correct": 0.5} for n in (0, 2)]
    assert "Novel: not in the cold start" in page(tmp_path, steps, held_out).text
    assert "novel of the correct, last turn" in page(tmp_path, steps, held_out).text
    assert "cold start" not in page(tmp_path).text


SOURCE = "\n".join(f"line_{number} < 1" for number in range(1, 20))


@pytest.fixture
def page_of(tmp_path):
    return lambda result: write_profile_page(tmp_path / "page.html", result, SOURCE).read_text()


def test_the_page_has_all_kernels_changes_and_wasteful_lines(page_of):
    text = page_of(profiled())
    assert all(f"<h2>{name}</h2>" in text for name in ("softmax", "other", "third"))
    assert "move x between memory and the kernel only once (line 14)" in text
    assert "do the work of other in the same launch" in text
    assert "line_14 &lt; 1" in text  # the wasteful line


def test_measured_times_stand_beside_predicted_ones(page_of):
    assert "measured" not in page_of(profiled())
    text = page_of(measured())
    assert "Forward, measured" in text
    assert re.search(r"gpu__time_duration, measured</dt><dd>38.0 us", text)


def test_a_candidates_names_stay_text(page_of):
    evil = LAUNCH.model_copy(update={"name": "<script>alert(1)</script>"})
    text = page_of(profiled(profile=PROFILE.model_copy(update={"launches": (evil,)})))
    assert "<script" not in text
    assert "default-src 'none'" in text


def test_a_kernel_lies_on_the_roof_that_it_reaches():
    chart = roofline(gpu_named("h100"), [Work("k", 67e9, 1e6, 1.0)])  # 67 TFLOP/s of plain float32
    roof, point = chart.lines[0], chart.lines[-1].dots[0]
    assert point.y == float(roof.path.split()[-1].split(",")[1])


def test_memory_and_arithmetic_meet_at_the_ridge():
    gpu = gpu_named("h100")
    ridge = gpu.tflops * 1e12 / (gpu.bandwidth_gbs * 1e9)
    chart = roofline(gpu, [Work("k", ridge * 1e6, 1e6, ridge * 1e6 / (gpu.tflops * 1e12) * 1e3)])
    assert f"{chart.lines[-1].dots[0].x:g},{chart.lines[-1].dots[0].y:g}" in chart.lines[0].path.split()
