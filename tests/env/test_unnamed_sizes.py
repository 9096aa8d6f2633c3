# SPDX-License-Identifier: Apache-2.0
"""A right kernel at sizes that its task does not name."""

import pytest

from tests.commands.lines import invoked
from tests.env.programs import reference
from tests.env.test_size_verdicts import PADDED_BY_ZEROS, RIGHT
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, LocalPool, Task
from verl_kernel.env.unnamed_sizes import next_power_of_two, next_prime, one_above, other_sizes, with_other_sizes
from verl_kernel.figures.attempts import attempt_of

NUMBERS = "ROWS, COLUMNS, CHANNELS = 32, 256, 3"
REFERENCE = reference("torch.softmax(x, -1)", "torch.randn(ROWS, COLUMNS)", before=f"{NUMBERS}\n")
OK = EvalResult(task_id="t", status=EvalStatus.OK, correctness=True, speedup=2.0)
WRONG = EvalResult(task_id="t", status=EvalStatus.INCORRECT, correctness=False)
LOST = EvalResult(task_id="t", status=EvalStatus.INFRA_ERROR)


@pytest.mark.parametrize(("rule", "number", "other"), [
    (one_above, 256, 257), (next_prime, 256, 257), (next_prime, 32, 37), (next_prime, 37, 41),
    (next_power_of_two, 256, 512), (next_power_of_two, 257, 512),
])  # fmt: skip
def test_other_numbers(rule, number, other):
    assert rule(number) == other


def test_one_number_changes_at_a_time_and_small_ones_stay():
    others = other_sizes(Task(REFERENCE, "softmax"))
    assert list(others) == ["33 for 32", "37 for 32", "64 for 32", "257 for 256", "512 for 256"]
    assert "32, 257, 3" in others["257 for 256"].reference
    assert others["257 for 256"].task_id == "softmax[257 for 256]"


def test_a_task_of_four_large_numbers_has_at_most_twelve_others():
    names = list(other_sizes(Task(REFERENCE.replace(NUMBERS, "SIZES = 20, 30, 40, 50, 60, 70"), "t")))
    assert len(names) <= 12
    assert not any("for 20" in name or "for 30" in name for name in names)


@pytest.mark.parametrize(("other", "flags"), [(OK, ()), (WRONG, ("only_this_size",)), (LOST, ())])
def test_a_flag_says_what_the_verdict_does_not(other, flags):
    result = with_other_sizes(OK, {"257 for 256": other})
    assert (result.status, result.speedup, result.hack_flags) == (EvalStatus.OK, 2.0, flags)
    assert [verdict.status for verdict in result.other_sizes] == [other.status]


@pytest.mark.processes
def test_padding_that_the_tasks_own_size_forgives_is_flagged(tmp_path, capfd):
    """Also by an option, for whoever judges without that command."""
    for name, text in {"reference": REFERENCE, "right": RIGHT, "padded": PADDED_BY_ZEROS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    files = [str(tmp_path / f"{name}.py") for name in ("reference", "right", "padded")]
    invoked("eval", *files, "--device=cpu", "--trials=1", "--other-sizes", "--json")
    right, padded = map(EvalResult.model_validate_json, capfd.readouterr().out.splitlines())
    assert [right.hack_flags, padded.hack_flags] == [(), ("only_this_size",)]
    wrong = [one.name for one in padded.other_sizes if one.status is not EvalStatus.OK]
    assert wrong == ["257 for 256"]
    with LocalPool(GymOptions(device="cpu", correctness_trials=1, other_sizes=True)) as pool:
        (result,) = pool.evaluate_many([(Task(REFERENCE, "softmax"), PADDED_BY_ZEROS, "")])
    assert attempt_of(result).any_size is False
