# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from random import Random

import pytest

from verl_kernel.env import EvalStatus, GymOptions, LocalPool, Task
from verl_kernel.quickstart.hard.answers import FLAWS, Answer, Extent, decoy, layouts, other, with_flaw
from verl_kernel.quickstart.hard.tasks import FAMILIES, LEVELS, draw_distinct, draw_program
from verl_kernel.quickstart.hard.verdicts import expected_verdict

STATUS = {
    "ok": (EvalStatus.OK,),
    "decoy": (EvalStatus.DECOY,),
    "form": (EvalStatus.INCORRECT,),
    "wrong": (EvalStatus.INCORRECT,),
    "outside": (EvalStatus.CRASH,),
    "broken": (EvalStatus.REJECTED_STATIC, EvalStatus.COMPILE_ERROR, EvalStatus.RUNTIME_ERROR),
}


@pytest.fixture(scope="module")
def pool():
    options = GymOptions(
        device="cpu", num_judges=1, correctness_trials=2, true_size="auto", memory_checks="refuse"
    )  # fmt: skip
    with LocalPool(options, seed=0) as pool:
        yield pool


def answers(program, rng):
    """The full kernel right, of the wrong type and with every flaw that fits; one lazy kernel; a decoy."""
    full, *rest = [Answer(program, layout, program.dtype) for layout in layouts(program)]
    lazy = [answer for answer in rest if answer.layout.extent is Extent.LAZY][:1]
    flawed = {found.flaw: found for _ in range(60) if (found := with_flaw(full, rng))}
    return [full, *lazy, decoy(program, program.dtype), replace(full, dtype=other(full.dtype)), *flawed.values()]


@pytest.mark.processes
@pytest.mark.parametrize("family", FAMILIES)
def test_every_answer_gets_the_verdict_it_is_made_for(pool, family):
    rng = Random(family)
    program = draw_program(rng, family, rng.choice(LEVELS))
    drawn = answers(program, rng)
    task = Task(program.reference, program.task_id)
    for answer, result in zip(drawn, pool.evaluate_many([(task, item.source, "") for item in drawn]), strict=True):
        context = (program.model, answer.layout.extent, answer.flaw, result.status, result.error, result.true_size)
        assert result.status in STATUS[answer.outcome], context
        expected = expected_verdict(answer, rng)
        assert result.status == expected.status, context
        assert (result.error and result.error.type) == (expected.error and expected.error.type), context
        if result.status == "compile_error":
            assert result.error == expected.error, context
        if answer.outcome == "ok":
            assert result.true_size is None or result.true_size.unknown is None, context
            is_full = answer.layout.extent is Extent.FULL
            # A block of 65,536 on 32 warps needs more registers than there are, which costs the full kernel some.
            assert result.speedup > 1.65 if is_full else 1.1 <= result.speedup < 1.65, context


@pytest.mark.processes
def test_a_decoy_is_paid_like_a_kernel_where_checks_are_off():
    options = GymOptions(device="cpu", num_judges=1, correctness_trials=2, true_size="auto", decoys="record")
    rng = Random(0)
    programs = [draw_program(rng, family, 2) for family in ("elementwise", "softmax")]
    with LocalPool(options, seed=0) as pool:
        jobs = [(Task(item.reference, item.task_id), decoy(item, item.dtype).source, "") for item in programs]
        results = pool.evaluate_many(jobs)
    assert all(result.correctness and result.decoy_kernel and result.speedup > 1.2 for result in results)


def test_every_task_can_be_answered_lazily_and_in_full():
    for program in draw_distinct(200, Random(0)):
        extents = {layout.extent for layout in layouts(program)}
        assert Extent.FULL in extents, program.model
        assert extents & {Extent.LAZY, Extent.PARTIAL}, program.model
        assert len({Answer(program, layout, "float32").source for layout in layouts(program)}) == len(layouts(program))


def test_every_flaw_is_drawn_and_changes_the_source():
    rng, seen = Random(0), set()
    for program in draw_distinct(80, rng):
        for _ in range(10):
            right = Answer(program, rng.choice(layouts(program)), program.dtype)
            flawed = with_flaw(right, rng)
            if flawed is not None:
                assert flawed.source != right.source
                assert flawed.outcome == FLAWS[flawed.flaw][0]
                seen.add(flawed.flaw)
    assert seen == set(FLAWS)
