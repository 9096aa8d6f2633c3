# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from random import Random

import pytest
import torch

from verl_kernel.quickstart.hard.ops import OPS
from verl_kernel.quickstart.hard.tasks import FAMILIES, LEVELS, draw_distinct, draw_program

PROGRAMS = [draw_program(Random(1), family, level) for family in FAMILIES for level in LEVELS]


def small(program):
    """The reference's class and inputs at sizes that a test can run."""
    space = {}
    text = program.reference.replace(f"{program.shape[0]}, {program.shape[1]}, {program.shape[2]}", "64, 40, 16")
    exec(text, space)
    return space


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.family}{program.level}")
def test_a_reference_runs_and_every_step_of_it_counts(program):
    torch.manual_seed(0)
    space = small(program)
    inputs = space["get_inputs"]()
    result = space["Model"]()(*inputs)
    assert result.dtype == getattr(torch, program.dtype)
    assert torch.isfinite(result).all()
    assert len(result.unique()) > 20
    for number, step in enumerate(program.steps):
        without = small(type(program)(program.family, program.level,
                                      (*program.steps[:number], *program.steps[number + 1 :]),
                                      program.shape, program.dtype))["Model"]()(*inputs)  # fmt: skip
        same = without.shape == result.shape and torch.allclose(without.float(), result.float(), rtol=1e-2, atol=1e-3)
        assert not same, step.name


@pytest.mark.parametrize("name", OPS)
def test_torchs_shorter_way_computes_the_same(name):
    op = OPS[name]
    space = {"torch": torch, "nn": torch.nn, "x": torch.randn(8, 33, dtype=torch.float64)}
    written, short = dict(space), dict(space)
    for line in op.torch:
        exec(line.format(a="0.5"), written)
    if op.builtin:
        exec(f"x = {op.builtin}".format(a="0.5"), short)
        torch.testing.assert_close(written["x"], short["x"])


def test_invented_functions_are_missing_and_each_names_its_op():
    import triton.language as tl

    called = [op.invented.split("(")[0].removeprefix("tl.") for op in OPS.values()]
    assert not [name for name in called if hasattr(tl, name)]
    assert len(set(called)) == len(called)
    assert all(op.mistake in OPS and op.mistake != name for name, op in OPS.items())


def test_families_and_levels_are_evenly_drawn():
    programs = draw_distinct(160, Random(0))
    assert len({program.reference for program in programs}) == 160
    assert set(Counter(program.family for program in programs).values()) == {20}
    assert set(Counter(program.level for program in programs).values()) == {32}
    assert all(sum(bool(step.a) for step in program.steps) <= 1 for program in programs)


def test_a_prompt_shows_neither_sizes_nor_the_outputs_type():
    program = draw_program(Random(2), "matmul", 3)
    assert "DTYPE" in program.model
    assert program.dtype not in program.model
    assert not any(str(size) in program.model for size in program.shape)
    assert program.model in program.reference
