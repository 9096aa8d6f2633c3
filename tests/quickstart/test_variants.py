# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest

from tests.quickstart.test_tasks import CHAINS, make_program
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.local import LocalPool
from verl_kernel.env.task import Task
from verl_kernel.quickstart.kernels import layouts
from verl_kernel.quickstart.ops import OPS
from verl_kernel.quickstart.tasks import FAMILIES, draw_distinct
from verl_kernel.quickstart.variants import FLAWS, LAZY_SHARE, Kind, variants
from verl_kernel.quickstart.verdicts import expected_verdict

JUDGED = (Kind.FUSED, Kind.WRONG)
"""Kinds that are judged for every chain; the others follow from a chain's steps alone."""
BROKEN = ("rejected_static", "load_error", "compile_error", "runtime_error")


@pytest.fixture(scope="module")
def pool():
    options = GymOptions(device="cpu", num_judges=1, correctness_trials=2, memory_checks="record")
    with LocalPool(options, seed=0) as pool:
        yield pool


@pytest.mark.processes
@pytest.mark.parametrize("family", FAMILIES)
def test_every_variant_gets_the_verdict_it_is_made_for(pool, family):
    rng = Random(family)
    whole = rng.choice(sorted(FAMILIES[family]))
    for chain in FAMILIES[family]:
        program = make_program(family, chain, rng)
        candidates = [item for item in variants(program, rng) if chain == whole or item.kind in JUDGED]
        task = Task(program.reference, program.task_id)
        results = pool.evaluate_many([(task, variant.source, "") for variant in candidates])
        for variant, result in zip(candidates, results, strict=True):
            assert_is(program, variant, result)
            assert_expected(program, variant, result, expected_verdict(program, variant, rng))


def assert_is(program, variant, result):
    context = (program, variant.flaw, result.status, result.error)
    assert not result.memory_findings, (*context, result.memory_findings)
    if variant.kind is Kind.FUSED:
        assert result.status == "ok", context
        assert result.time_coverage > 0.99, context
        assert result.speedup > 2.6, context
    elif variant.kind is Kind.PARTIAL:
        assert result.status == "ok", context
        assert LAZY_SHARE < result.time_coverage < 0.99, context
    elif variant.kind is Kind.LAZY:
        assert result.status == "ok", context
        assert result.time_coverage < LAZY_SHARE, context
        assert result.launches, context
    elif variant.kind is Kind.WRONG:
        assert result.status == "incorrect", context
    elif variant.kind is Kind.DECOY:
        assert result.status == "decoy", context
    else:
        assert result.status in BROKEN, context


def assert_expected(program, variant, result, expected):
    types = [verdict.error and verdict.error.type for verdict in (result, expected)]
    assert result.status == expected.status, (program, variant.flaw, result.error)
    assert types[0] == types[1], (program, variant.flaw, result.error)
    if result.status == "compile_error":
        assert result.error == expected.error
    if result.status == "ok":
        # Verdicts are made from numbers of kernels; what each of them does takes some percent of its start.
        assert result.speedup == pytest.approx(expected.speedup, rel=0.1)
        assert result.time_coverage == pytest.approx(expected.time_coverage, abs=0.05)
        assert result.hack_flags == expected.hack_flags


def test_invented_functions_are_really_missing():
    import triton.language as tl

    called = [op.invented.split("(")[0].removeprefix("tl.") for op in OPS.values()]
    assert not [name for name in called if hasattr(tl, name)]
    assert len(set(called)) == len(called)


def test_a_mistake_is_another_operation():
    for name, op in OPS.items():
        if op.mistake:
            assert op.mistake != name
            assert "{a}" in op.torch or "{a}" not in OPS[op.mistake].torch


@pytest.mark.parametrize(("family", "chain"), CHAINS)
def test_every_kind_of_task_has_every_kind_of_answer(family, chain):
    program = make_program(family, chain, Random(0))
    found = variants(program, Random(0))
    assert {variant.kind for variant in found} == set(Kind)
    assert len({variant.source for variant in found}) == len(found)
    assert layouts(program)[0].share == 1
    assert layouts(program)[-1].share < LAZY_SHARE
    for kind in (Kind.WRONG, Kind.BROKEN, Kind.DECOY):
        assert sum(variant.kind is kind for variant in found) >= 2


def test_every_flaw_applies_to_some_task():
    rng = Random(0)
    seen = {variant.flaw for program in draw_distinct(60, rng) for variant in variants(program, rng)}
    assert {flaw for flaws in FLAWS.values() for flaw in flaws} <= seen
