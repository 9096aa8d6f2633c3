# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest
from hypothesis import given, settings

from tests.tiers import thinned
from tests.world.test_chains import WEIGHTS, programs
from verl_kernel.env import EvalStatus, GymOptions, LocalPool, Task, check
from verl_kernel.world.answers import FLAWS, all_answers, right_answers
from verl_kernel.world.chains import DTYPES, SIZES, Program, draw_shape, draw_steps
from verl_kernel.world.kernels import Style
from verl_kernel.world.kinds import RIGHT, Kind
from verl_kernel.world.verdicts import expected_verdict

STATUS = {
    **{kind: {EvalStatus.OK} for kind in RIGHT}, Kind.DECOY: {EvalStatus.DECOY}, Kind.WRONG: {EvalStatus.INCORRECT},
    Kind.TYPE: {EvalStatus.INCORRECT}, Kind.OUTSIDE: {EvalStatus.CRASH},
    Kind.BROKEN: {EvalStatus.REJECTED_STATIC, EvalStatus.COMPILE_ERROR, EvalStatus.RUNTIME_ERROR},
}  # fmt: skip


def drawn(seed, count):
    rng = Random(seed)
    steps = draw_steps(count, WEIGHTS, rng)
    return Program(steps, draw_shape(steps, SIZES, rng), rng.choice(DTYPES))


@pytest.mark.slow
@settings(deadline=None)
@given(programs())
def test_right_answers_pass_the_static_gate(program):
    answers = right_answers(program)
    assert answers[0].kind is Kind.FUSED
    assert len({answer.source for answer in answers}) == len(answers)
    for answer in answers:
        assert check(answer.source) == [], answer.source


@pytest.mark.processes
@pytest.mark.parametrize("seed_and_count", thinned([(1, 2), (3, 1), (5, 3), (4, 4)], every=4))
def test_the_gym_judges_every_answer_as_what_it_is(seed_and_count):
    seed, count = seed_and_count
    program = drawn(seed, count)
    answers = all_answers(program, Random(seed))
    with LocalPool(GymOptions(device="cpu", correctness_trials=3), seed=0) as pool:
        results = pool.evaluate_many([(Task(program.reference), item.source, item.name) for item in answers])
    for answer, result in zip(answers, results, strict=True):
        context = (program.names, program.shape, program.dtype, answer.name, result.error)
        expected = expected_verdict(answer, Random(0))
        assert result.status in STATUS[answer.kind], context
        assert result.status == expected.status, context
        assert (result.error and result.error.type) == (expected.error and expected.error.type), context
        if result.status == "compile_error":
            assert result.error.message == expected.error.message, context
        if answer.kind is Kind.FUSED and count > 1:
            assert result.speedup > 1.2, context
        if answer.kind in RIGHT:
            assert result.speedup == pytest.approx(expected.speedup, rel=0.5), context


def test_every_style_and_every_flaw_is_offered():
    rng, styles, flaws = Random(0), set(), set()
    for seed in range(80):
        for answer in all_answers(drawn(seed, 1 + seed % 4), rng):
            styles |= {part.style for part in answer.parts}
            flaws.add(answer.name)
            if answer.sound is not None:
                assert answer.source != answer.sound.source
    assert styles == {None, *Style}
    assert flaws >= {*FLAWS, "unused_launch", "never_launched", "other_type"}
