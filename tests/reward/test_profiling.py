# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reward.results import correct, failed
from verl_kernel.env.result import EvalStatus
from verl_kernel.errors import ConfigError, InfraError
from verl_kernel.reward.profiling import ProfilingReward, profiling_reward

EQ8 = ProfilingReward(scale=1.0)


@pytest.mark.parametrize(
    ("speedup", "coverage", "expected"),
    [(2.0, 0.5, 3.5), (3.0, 1.0, 5.0), (50.0, 1.0, 5.0), (0.25, 0.0, 1.25), (None, None, 1.0)],
)
def test_paper_equation_8(speedup: float | None, coverage: float | None, expected: float) -> None:
    assert profiling_reward(correct(speedup, coverage), EQ8) == expected
    assert profiling_reward(correct(speedup, coverage)) == expected / 2


@pytest.mark.parametrize("status", [s.value for s in EvalStatus if s.value not in ("ok", "infra_error")])
def test_a_failure_earns_nothing_whatever_was_measured(status: str) -> None:
    assert profiling_reward(failed(status, speedup=9.0, time_coverage=1.0, correctness=True)) == 0.0


@pytest.mark.parametrize("gate", [{"correctness": False}, {"correctness": None}, {"decoy_kernel": True}])
def test_an_ok_status_alone_earns_nothing(gate: dict[str, Any]) -> None:
    assert profiling_reward(correct(9.0).model_copy(update=gate)) == 0.0


def test_infra_error_is_never_a_reward() -> None:
    with pytest.raises(InfraError, match="not judged") as error:
        profiling_reward(failed("infra_error", correctness=None))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("key", ["speedup", "coverage"])
def test_broken_measurements_are_our_failure(key: str, broken: float) -> None:
    with pytest.raises(InfraError, match=key):
        profiling_reward(correct(**{key: broken}))


def test_coverage_by_number() -> None:
    result = correct().model_copy(update={"time_coverage": 0.25, "number_coverage": 0.75})
    assert profiling_reward(result, ProfilingReward(scale=1.0, coverage="number")) == 2.75


@given(speedup=st.floats(0, 100), more=st.floats(0, 100), coverage=st.floats(0, 1))
def test_reward_is_bounded_and_grows_with_speedup(speedup: float, more: float, coverage: float) -> None:
    low, high = (profiling_reward(correct(s, coverage)) for s in (speedup, speedup + more))
    assert 0.5 <= low <= high <= 2.5


@pytest.mark.parametrize(
    ("key", "value"), [("scale", -1), ("speedup_cap", math.inf), ("coverage_weight", "1"), ("coverage", "bytes")]
)
def test_bad_options_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"kernelgym.reward.{key} "):
        ProfilingReward(**{key: value})
