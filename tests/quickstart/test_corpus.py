# SPDX-License-Identifier: Apache-2.0
import ast
from collections import Counter, defaultdict
from random import Random

import pytest

from verl_kernel.quickstart.corpus import (
    FIRST,
    SECOND,
    answer_text,
    draw_conversation,
    draw_corpus,
    draw_variant,
    task_messages,
)
from verl_kernel.quickstart.tasks import draw_program
from verl_kernel.quickstart.variants import Kind
from verl_kernel.reward.extract import extract_code


@pytest.fixture(scope="module")
def answers():
    """First answers: kind and text."""
    rng = Random(5)
    drawn = [draw_variant(draw_program(rng), FIRST, rng) for _ in range(1500)]
    return [(variant.kind, answer_text(variant, rng)) for variant in drawn]


def test_corpus_is_deterministic_and_avoids_held_out_tasks():
    assert draw_corpus(20, Random(3), set()) == draw_corpus(20, Random(3), set())
    first = draw_program(Random(3))
    talks = draw_corpus(20, Random(3), {first.reference})
    assert all(first.reference not in talk[0]["content"] for talk in talks)


def test_second_answers_are_better():
    for mixture in (FIRST, *SECOND.values()):
        assert set(mixture) == set(Kind)
        assert sum(mixture.values()) == pytest.approx(1)
    assert set(SECOND) == set(Kind)
    assert all(mixture[Kind.FUSED] > 1.5 * FIRST[Kind.FUSED] for mixture in SECOND.values())


def test_first_answers_are_mixed_as_declared(answers):
    shares = Counter(kind for kind, _ in answers)
    for kind, share in FIRST.items():
        assert shares[kind] / len(answers) == pytest.approx(share, abs=0.04)


def test_the_line_before_the_code_hints_at_the_kind(answers):
    kinds = defaultdict(Counter)
    for kind, text in answers:
        kinds[text.splitlines()[0]][kind] += 1
    for counts in kinds.values():
        assert len(counts) >= 2
        assert counts.most_common(1)[0][1] / counts.total() < 0.75
        flawed = counts[Kind.WRONG] + counts[Kind.BROKEN]
        assert not flawed or counts[Kind.FUSED] / counts.total() > 0.1
    fused = [counts[Kind.FUSED] / counts.total() for counts in kinds.values() if counts[Kind.FUSED]]
    assert max(fused) > 1.5 * min(fused)


def test_conversations_hold_programs_and_feedback():
    rng = Random(4)
    for _ in range(40):
        program = draw_program(rng)
        talk = draw_conversation(program, rng)
        assert [message["role"] for message in talk] == ["user", "assistant", "user", "assistant"]
        assert talk[:1] == task_messages(program)
        assert talk[2]["content"].startswith("Verdict: ")
        for answer in (talk[1], talk[3]):
            code = extract_code(answer["content"])
            assert code is not None
            assert "ModelNew" in code
            if "class ModelNew(nn.Module):" in code:
                ast.parse(code)
