# SPDX-License-Identifier: Apache-2.0
import ast
from random import Random

import pytest

from verl_kernel.data.corpus import draw_conversation, draw_corpus, task_messages
from verl_kernel.data.tasks import FAMILIES, OPS, Program, draw_distinct, draw_program, draw_step
from verl_kernel.data.variants import FLAWS, Kind, variants
from verl_kernel.data.verdicts import expected_verdict
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool import LocalPool
from verl_kernel.env.task import Task
from verl_kernel.reward.extract import extract_code

CHAINS = [(family, index) for family, chains in FAMILIES.items() for index in range(len(chains))]


@pytest.fixture(scope="module")
def pool():
    with LocalPool(GymOptions(device="cpu", num_judges=1, correctness_trials=2), seed=0) as pool:
        yield pool


def make_program(family: str, index: int, rng: Random) -> Program:
    return Program(family, tuple(draw_step(name, rng) for name in FAMILIES[family][index]), (6, 200))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_variant_gets_the_verdict_it_is_made_for(pool, family):
    rng = Random(family)
    for index in range(len(FAMILIES[family])):
        program = make_program(family, index, rng)
        candidates = variants(program, rng)
        task = Task(program.reference, program.task_id)
        for variant, result in zip(
            candidates, pool.evaluate_many([(task, variant.source, "") for variant in candidates]), strict=True
        ):
            assert_is(program, variant, result)
            expected = expected_verdict(program, variant, rng)
            assert (expected.status, expected.error and expected.error.type) == (
                result.status,
                result.error and result.error.type,
            ), (program, variant.flaw)
            if result.status == "ok":
                assert result.speedup == pytest.approx(expected.speedup, rel=0.01)
                assert result.time_coverage == pytest.approx(expected.time_coverage, abs=0.01)


def assert_is(program, variant, result):
    context = (program, variant.flaw, result.status, result.error)
    if variant.kind is Kind.FUSED:
        assert result.status == "ok" and result.time_coverage > 0.99 and result.speedup >= 1.9, context
    elif variant.kind is Kind.PARTIAL:
        assert result.status == "ok" and 0.4 < result.time_coverage < 0.99, context
    elif variant.kind is Kind.LAZY:
        assert result.status == "ok" and result.time_coverage < 0.35 and result.launches, context
    elif variant.kind is Kind.WRONG:
        assert result.status == "incorrect", context
    elif variant.kind is Kind.DECOY:
        assert result.status == "decoy", context
    else:
        assert result.status in ("rejected_static", "load_error", "compile_error", "runtime_error"), context


def test_missing_triton_functions_are_really_missing():
    import triton.language as tl

    called = {op.missing.split("(")[0].removeprefix("tl.") for op in OPS.values()}
    assert not [name for name in called if hasattr(tl, name)]


def test_every_flaw_applies_to_some_task():
    rng = Random(0)
    seen = {variant.flaw for program in draw_distinct(60, rng) for variant in variants(program, rng)}
    assert {flaw for flaws in FLAWS.values() for flaw in flaws} <= seen


def test_tasks_are_distinct_and_valid():
    taken = set()
    programs = draw_distinct(200, Random(1), taken) + draw_distinct(50, Random(1), taken)
    assert len({program.reference for program in programs}) == len({program.task_id for program in programs}) == 250
    for program in programs:
        assert Task(program.reference).entry_point == "Model"
    assert {program.family for program in programs} == set(FAMILIES)


def test_corpus_is_deterministic_and_avoids_held_out_tasks():
    assert draw_corpus(20, Random(3), set()) == draw_corpus(20, Random(3), set())
    first = draw_program(Random(3))
    talks = draw_corpus(20, Random(3), {first.reference})
    assert all(first.reference not in talk[0]["content"] for talk in talks)


def test_conversations_hold_extractable_programs_and_the_gyms_feedback():
    rng = Random(4)
    for _ in range(40):
        program = draw_program(rng)
        talk = draw_conversation(program, rng)
        assert [message["role"] for message in talk] == ["user", "assistant", "user", "assistant"]
        assert talk[:1] == task_messages(program)
        assert talk[2]["content"].startswith("Verdict: ")
        for answer in (talk[1], talk[3]):
            code = extract_code(answer["content"])
            assert code is not None and "ModelNew" in code
            if "class ModelNew(nn.Module):" in code:
                ast.parse(code)
