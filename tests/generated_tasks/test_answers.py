# SPDX-License-Identifier: Apache-2.0
"""Chains of operations and their references, answers to them and the gym's verdicts, and answers that call tools."""

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import thinned
from verl_kernel.data.families import normal_form
from verl_kernel.env import EvalStatus, GymOptions, LocalPool, Task, check
from verl_kernel.generated_tasks.answers import FLAWS, all_answers, right_answers
from verl_kernel.generated_tasks.chains import (
    DTYPES,
    HIDEABLE,
    SIZES,
    ChainStep,
    Program,
    draw_shape,
    draw_steps,
    is_sound,
    states,
)
from verl_kernel.generated_tasks.conversations import FEEDBACK_CHARS, TOOLS, call_text
from verl_kernel.generated_tasks.difficulty import read_difficulty
from verl_kernel.generated_tasks.generator import World
from verl_kernel.generated_tasks.kernels import Style
from verl_kernel.generated_tasks.kinds import RIGHT, Kind
from verl_kernel.generated_tasks.ops import EXISTING, FAMILIES, OPS, Shape
from verl_kernel.generated_tasks.tokenizer import encode_conversation, train_tokenizer
from verl_kernel.generated_tasks.verdicts import expected_verdict
from verl_kernel.reward.extract import extract_code
from verl_kernel.rollout.tool_replies import ACCEPTED

STATUS = {
    **{kind: {EvalStatus.OK} for kind in RIGHT}, Kind.DECOY: {EvalStatus.DECOY}, Kind.WRONG: {EvalStatus.INCORRECT},
    Kind.TYPE: {EvalStatus.INCORRECT}, Kind.OUTSIDE: {EvalStatus.CRASH},
    Kind.BROKEN: {EvalStatus.REJECTED_STATIC, EvalStatus.COMPILE_ERROR, EvalStatus.RUNTIME_ERROR},
}  # fmt: skip
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
    assert not is_sound(tuple(map(ChainStep, names)))


def test_functions_that_answers_imagine_are_missing():
    import triton.language as tl

    assert {name for name in OPS if hasattr(tl, name)} == EXISTING


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


@pytest.fixture(scope="module")
def talks():
    return World(read_difficulty("tools")).talks(120, Random(2), set())


@pytest.fixture(scope="module")
def called(talks):
    return [talk for talk in talks if len(talk) == 4]


@pytest.mark.slow
def test_an_answer_calls_a_tool_or_ends(talks, called):
    assert {len(talk) for talk in talks} == {2, 4}
    assert not any("<tool_call>" in talk[-1]["content"] for talk in talks)
    for talk in called:
        assert [message["role"] for message in talk] == ["user", "assistant", "tool", "assistant"]
        assert talk[1]["content"].endswith(tuple(map(call_text, TOOLS)))


def test_every_answer_holds_a_program(talks):
    assert all(extract_code(message["content"]) for talk in talks for message in talk[1::2])


@pytest.mark.parametrize("tool", TOOLS)
def test_both_tools_are_taught(called, tool):
    said = [talk[2]["content"] for talk in called if call_text(tool) in talk[1]["content"]]
    assert any("Verdict: " in text for text in said)
    assert any(text.startswith({"check": ACCEPTED, "run": "On public inputs"}[tool]) for text in said)
    assert max(map(len, said)) <= FEEDBACK_CHARS + 60


def test_what_a_check_accepts_is_the_answer(called):
    accepted = [talk for talk in called if talk[2]["content"] == ACCEPTED]
    assert accepted
    assert all(talk[1]["content"].startswith(talk[3]["content"]) for talk in accepted)


def test_a_tools_message_is_encoded_as_the_template_has_it(called):
    tokenizer = train_tokenizer((message["content"] for talk in called for message in talk), 800)
    ids, targets = encode_conversation(tokenizer, called[0])
    assert ids == tokenizer.apply_chat_template(called[0], tokenize=True, return_dict=False)
    assert sum(targets) < len(targets)


def test_rows_are_played_with_tools():
    world = World(read_difficulty("tools"))
    (row,) = world.rows(world.tasks(1, Random(1), set()), "train")
    assert row["agent_name"] == "tool_agent"
    assert list(row["extra_info"]["tools_kwargs"]) == list(TOOLS)
