# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from tests.bench.page.runs import answer, right, timing
from verl_kernel.bench.page.details import CODE_LIMIT, completion_limit, reason, task_details
from verl_kernel.bench.page.task_rows import task_rows
from verl_kernel.env import EvalError, EvalStatus, MemoryFinding
from verl_kernel.env.result import Launch
from verl_kernel.figures.attempts import Asked, AskedTask


def details(*turns, limit=1000):
    asked = Asked((AskedTask("t1", 2, "softmax"),), samples=4, turns=4)
    return task_details(task_rows(asked, turns)[0], limit)


def turn(one, limit=1000):
    return details(one, limit=limit)["samples"][0]["turns"][0]


def test_samples_hold_their_turns_in_order():
    found = details(answer(sample=1, turn=2), answer(sample=1), right(sample=0, turn=3))
    assert [(one["sample"], [each["turn"] for each in one["turns"]]) for one in found["samples"]] == [
        (0, [3]),
        (1, [1, 2]),
    ]
    assert (found["task"], found["level"], found["family"], found["chosen"]) == ("t1", 2, "softmax", (0, 3))


def test_an_answer_is_called_best_only_where_it_is_right():
    assert details(answer(), right(turn=2))["best"] == (0, 2)
    wrong = details(answer(), answer(turn=2))
    assert wrong["chosen"] is not None
    assert wrong["best"] is None


def test_the_reference_comes_with_the_task():
    (row,) = task_rows(Asked((AskedTask("t1"),), 1, 1), [right()])
    assert task_details(row, 100, "a = 1\nb = 2")["reference"] == ["a = 1", "b = 2"]
    assert task_details(row, 100)["reference"] is None
    long = task_details(row, 100, "x = 1\n" * CODE_LIMIT)
    assert long["reference_cut"] == 5 * CODE_LIMIT


def test_a_kernel_comes_with_its_lines_and_what_is_said_there():
    finding = MemoryFinding(kind="uninitialised_read", kernel="f", line=2, message="it reads what nobody wrote")
    found = turn(answer(code="a = 1\nb = 2", status=EvalStatus.UNSAFE, memory_findings=(finding,)))
    assert found["code"] == ["a = 1", "b = 2"]
    assert (found["status"], found["group"]) == ("unsafe", "wrong")
    assert [(one["line"], one["kind"]) for one in found["remarks"]] == [(2, "memory")]


def test_long_texts_are_cut_and_say_so():
    code = "x = 1\n" * (CODE_LIMIT // 6) + "y = 2222222222"
    found = turn(answer(code=code, completion="z" * 3000), limit=1200)
    assert found["code_cut"] == len(code) - CODE_LIMIT
    assert "".join(found["code"]) in code.replace("\n", "")
    assert found["completion_cut"] == 1800
    assert "1,800 characters left out" in found["completion"]


@pytest.mark.parametrize(("answers", "limit"), [(0, 16_000), (2_000, 16_000), (8_000, 4_000), (10**6, 1_000)])
def test_many_answers_share_the_room_of_a_page(answers, limit):
    assert completion_limit(answers) == limit


def test_times_and_profile_are_those_of_the_answer():
    names = [
        ("aten::add", 0.25),
        ("fused", 0.5),
        *((f"op{number}", 0.025) for number in range(10)),
        ("odd", float("nan")),
    ]
    found = turn(right(top_kernels=tuple(names), launches=(Launch(name="fused", grid=(4,), count=1),)))
    assert [(one["name"], one["text"]) for one in found["times"]] == [("reference", "15 µs"), ("kernel", "10 µs")]
    assert found["times"][1]["range"] == "9.5 µs to 10.5 µs, 100 calls"
    assert [one["name"] for one in found["profile"] if one["own"]] == ["fused"]
    assert found["profile"][-1]["name"] == "4 others"
    assert found["profile"][-1]["share"] == pytest.approx(0.1)
    assert sum(one["share"] for one in found["profile"]) == pytest.approx(1.0)


def test_a_simulated_time_without_a_spread_says_so():
    spent = timing(0.01, spread=0.0)
    assert turn(right(kernel_ms=spent))["times"][1]["range"] == "simulated, no spread"
    measured = turn(right(kernel_ms=spent, timing_source="cuda_event"))
    assert measured["times"][1]["range"] == "10 µs to 10 µs, 100 calls"


def test_numbers_that_json_lacks_are_left_out():
    odd = timing(float("inf")).model_copy(update={"p20": float("nan")})
    facts = {"kernel_ms": odd, "reference_ms": timing(0.01), "time_coverage": float("nan")}
    found = details(right(speedup=float("inf"), reward=float("nan"), **facts))
    json.dumps(found, allow_nan=False)
    assert [one["name"] for one in found["samples"][0]["turns"][0]["times"]] == ["reference"]


def test_the_reason_says_what_is_known():
    error = EvalError(stage="load", type="ImportError", message=" no module \n")
    assert reason(answer(error=error, hack_flags=("only_moves",))) == "ImportError: no module; flags: only_moves"
    nothing = EvalError(stage="extract", type="NoCode", message="the answer holds no closed ```python block")
    assert reason(answer(error=nothing, failure="no_code")) == "the answer holds no program"
    assert reason(right()) == ""


def test_facts_are_those_that_are_known():
    facts = dict(turn(right(speedup=1.5, time_coverage=0.925, prompt_tokens=1234, shown=(1,)))["facts"])
    assert facts["coverage"] == "92% of device time in its own kernels"
    assert facts["tokens"] == "1,234 in"
    assert facts["prompt shows"] == "turn 1"
    assert facts["speedup"] == "1.50x"
    assert "trials" not in facts


def test_a_measured_speedup_says_what_is_sure():
    facts = dict(turn(right(speedup=1.5, speedup_low=1.25, timing_source="cuda_event"))["facts"])
    assert facts["speedup"] == "1.50x, surely 1.25x"
