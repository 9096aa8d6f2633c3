# SPDX-License-Identifier: Apache-2.0
import re
from random import Random

import pytest

from verl_kernel.env.task import Task
from verl_kernel.quickstart.tasks import FAMILIES, NUMBERS, Program, draw_distinct, draw_program, draw_shape, draw_steps

CHAINS = [(family, chain) for family, chains in FAMILIES.items() for chain in chains]


def make_program(family, chain, rng):
    return Program(family, draw_steps(chain, rng), draw_shape(family, rng))


def without_numbers(text):
    return re.sub(r"\d+(\.\d+)?", lambda match: "#" if match[0] in NUMBERS else match[0], text)


def test_five_families_hold_sixteen_kinds_on_three_levels():
    assert set(FAMILIES) == {"elementwise", "reduction", "normalisation", "softmax", "matmul"}
    assert len(set(CHAINS)) == len(CHAINS) >= 16
    for chains in FAMILIES.values():
        assert set(chains.values()) == {1, 2, 3}


@pytest.mark.parametrize(("family", "chain"), CHAINS)
def test_references_run_and_are_levelled(family, chain):
    program = make_program(family, chain, Random(0))
    scope = {}
    exec(compile(program.reference, "reference", "exec"), scope)
    output = scope["Model"](*scope["get_init_inputs"]())(*scope["get_inputs"]())
    assert output.isfinite().all()
    assert output.shape[0] == program.shape[0]
    assert output.shape[1] == (1 if family == "reduction" else program.shape[-1])
    assert program.level == FAMILIES[family][chain]
    assert program.task_id.startswith(f"{family}-")


@pytest.mark.parametrize(("family", "chain"), CHAINS)
def test_tasks_of_a_kind_differ_by_listed_numbers(family, chain):
    rng = Random(1)
    first, second = (make_program(family, chain, rng).reference for _ in range(2))
    assert first != second
    assert without_numbers(first) == without_numbers(second)
    assert sum("{a}" in step.op.torch for step in make_program(family, chain, rng).steps) <= 1


def test_no_number_is_neutral_or_drawn_elsewhere():
    assert len(set(NUMBERS)) == len(NUMBERS)
    assert not {"0", "0.0", "1", "1.0"} & set(NUMBERS)


def test_splits_are_distinct_valid_and_hold_every_kind():
    taken = set()
    programs = draw_distinct(200, Random(1), taken) + draw_distinct(50, Random(1), taken)
    assert len({program.reference for program in programs}) == len({program.task_id for program in programs}) == 250
    for program in programs:
        assert Task(program.reference).entry_point == "Model"
    kinds = {(program.family, tuple(step.name for step in program.steps)) for program in programs}
    assert kinds == set(CHAINS)


def test_a_seed_draws_the_same_tasks():
    assert draw_distinct(30, Random(2)) == draw_distinct(30, Random(2)) != draw_distinct(30, Random(3))
    assert draw_program(Random(4), "matmul") == draw_program(Random(4), "matmul")
