# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_kernel.data.families import normal_form
from verl_kernel.env import Task
from verl_kernel.world.chains import DTYPES, HIDEABLE, SIZES, Program, Step, draw_shape, draw_steps, is_sound, states
from verl_kernel.world.ops import EXISTING, FAMILIES, OPS, Shape

WEIGHTS = {family: len(names) for family, names in FAMILIES.items()}


@st.composite
def programs(draw):
    rng = Random(draw(st.integers(0, 10**9)))
    steps = draw_steps(rng.randint(1, 4), WEIGHTS, rng)
    hidden = tuple(key for key in HIDEABLE if rng.random() < 0.5)
    return Program(steps, draw_shape(steps, SIZES, rng), rng.choice(DTYPES), hidden)


@settings(deadline=None)
@given(programs())
def test_a_reference_runs_and_has_the_shape_it_should(program):
    space = {}
    exec(program.reference, space)
    model = space["Model"](*space["get_init_inputs"]())
    result = model(*space["get_inputs"]())
    sizes = {**dict(zip(("ROWS", "COLS", "WIDTH"), program.shape, strict=True)), "1": 1}
    last = program.states[-1]
    assert tuple(result.shape) == (sizes[last.rows], sizes[last.cols])
    assert result.dtype == getattr(torch, program.dtype)
    assert result.isfinite().all()


@settings(deadline=None)
@given(programs())
def test_a_prompt_hides_what_it_should(program):
    assert Task(program.reference).candidate_class == "ModelNew"
    assert ("ROWS, COLS" in program.prompt.partition("class")[0]) != ("sizes" in program.hidden)
    assert (program.dtype in program.prompt) != ("dtype" in program.hidden)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_there_are_at_least_five_thousand_prompts():
    rng, forms = Random(0), set()
    for _ in range(7000):
        steps = draw_steps(rng.choice((2, 3, 4)), WEIGHTS, rng)
        forms.add(normal_form(Program(steps, (4, 64, 16)).reference))
    assert len(forms) >= 5000


def test_there_are_twenty_operations_and_more():
    assert len(OPS) >= 20
    assert {op.shape for op in OPS.values()} == set(Shape)


@pytest.mark.parametrize("names", [
    ("relu", "embedding"), ("sum", "softmax"), ("sum", "bias"), ("flip", "cumsum"), ("relu", "relu"), ("bias", "gain"),
    ("max", "transpose"),
])  # fmt: skip
def test_steps_that_do_not_fit_are_refused(names):
    assert states(names) is None


@pytest.mark.parametrize("names", [
    ("abs", "relu"),  # no effect
    ("layer_norm", "mean"),  # zero
    ("softmax", "sum"),  # one
    ("softplus", "center", "peak_norm"),  # rounding, where a row is constant
    ("softplus", "l2_norm"),  # rounding, where a row is far below zero
    ("silu", "tanh"),  # rounding, where all inputs are small
    ("softplus", "norm"),  # rounding, where all inputs are far below zero
    ("softsign", "softmax", "center"),  # rounding, where all inputs are large
    ("flip",),  # computes nothing
])  # fmt: skip
def test_poor_tasks_are_not_drawn(names):
    assert states(names) is not None
    assert not is_sound(tuple(map(Step, names)))


def test_functions_that_answers_imagine_are_missing():
    import triton.language as tl

    assert {name for name in OPS if hasattr(tl, name)} == EXISTING
