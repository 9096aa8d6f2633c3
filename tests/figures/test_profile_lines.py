# SPDX-License-Identifier: Apache-2.0
from typing import get_args

import pytest

from tests.figures.profiles import LAUNCH, PROFILE, measured, profiled
from verl_kernel.env.result import Change, ChangeKind, EvalError, EvalResult, EvalStatus, TrueSize
from verl_kernel.figures.profile_lines import MOST_LINES, change_text, result_lines, size

LINES = result_lines(profiled())
ERROR = EvalError(stage="correctness", type="WrongValues", message="m")


def test_every_line_says_that_it_predicts():
    assert all(line.startswith("predicted: ") for line in LINES)


def test_there_are_at_most_twelve_lines():
    assert len(LINES) == MOST_LINES == 12


def test_the_second_line_has_the_largest_saving():
    assert LINES[1] == (
        "predicted: the largest saving: in softmax, move x between memory and the kernel only once (line 14): "
        "72.2 us -> 36.1 us (-50%)"
    )


@pytest.mark.parametrize("words", [
    "bound by device memory", "41% of its roofline", "55% of the task's roofline", "x 2: 35.1 us",
    "dram__bytes 201 MB where the task needs 134 MB", "lts__t_bytes 302 MB", "10.0 us wait for the host",
    "SMs 132 of 132", "Waves Per SM 3.88", "places for warps taken 48% of 50% (limited by registers)",
    "168 registers, 8 B spilled, 8.19 kB shared", "line 14: load of x takes 8.0 times its sectors",
    "moved of it, and needed: x 300 MB, 100 MB", "no tensor cores: it has no tl.dot",
])  # fmt: skip
def test_the_facts_are_told(words):
    assert words in "\n".join(LINES)


def test_the_rest_of_the_time_is_torchs():
    lines = result_lines(profiled(profile=PROFILE.model_copy(update={"launches": (LAUNCH,), "ms": 0.2})))
    assert "its own kernels take 70.2 us of it" in lines[0]
    assert "its own kernels" not in LINES[0]


def test_a_short_kernel_is_left_out():
    short = LAUNCH.model_copy(update={"name": "short", "ms": 0.001})
    lines = result_lines(profiled(profile=PROFILE.model_copy(update={"launches": (LAUNCH, short)})))
    assert not any("short" in line for line in lines)


def test_measured_times_stand_beside_predicted_ones():
    lines = result_lines(measured())
    assert "forward 72.2 us (measured 80.0 us)" in lines[0]
    assert "35.1 us (measured 38.0 us)" in lines[2]
    assert "measured" not in "".join(LINES)


def test_a_kernel_that_was_not_compiled_has_no_resources():
    bare = LAUNCH.model_copy(update={"registers": None, "spills": None, "shared": None, "limit": None})
    lines = result_lines(profiled(profile=PROFILE.model_copy(update={"launches": (bare,)})))
    assert "registers" not in "".join(lines)


def test_nothing_to_save_is_said():
    lines = result_lines(profiled(profile=PROFILE.model_copy(update={"changes": ()})))
    assert lines[1] == "predicted: no single change of its counts saves 1 %"


@pytest.mark.parametrize("kind", get_args(ChangeKind))
def test_every_kind_of_change_has_a_sentence(kind):
    text = change_text(Change(kind=kind, kernel="k", subject="x", ms=1.0))
    assert text.startswith("in k, ")
    assert "{" not in text


@pytest.mark.parametrize(("fields", "reason"), [
    ({"status": EvalStatus.INCORRECT, "error": ERROR}, "not timed (incorrect)"),
    ({"status": EvalStatus.OK, "unpriced_ops": ("aten::fft",)}, "nothing prices aten::fft"),
    ({"status": EvalStatus.OK, "true_size": TrueSize(sizes=(), unknown="it branches")}, "it branches"),
    ({"status": EvalStatus.OK, "timing_source": "cuda_event"}, "kernelgym.prefilter=cpu"),
    ({"status": EvalStatus.OK}, "no kernel of the program was launched"),
])  # fmt: skip
def test_a_missing_profile_has_its_reason_in_one_line(fields, reason):
    (line,) = result_lines(EvalResult(task_id="t", **fields))
    assert line.startswith("no profile: ")
    assert reason in line


def test_bytes_have_three_digits():
    assert [size(count) for count in (12, 12_345, 12_345_678, 12_345_678_901)] == [
        "12 B", "12.3 kB", "12.3 MB", "12.3 GB",
    ]  # fmt: skip
