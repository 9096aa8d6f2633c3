# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from dataclasses import replace
from random import Random

import pytest

from verl_kernel.errors import ConfigError
from verl_kernel.quickstart.hard.answers import Extent
from verl_kernel.quickstart.hard.mix import DEFAULT, read_mix
from verl_kernel.quickstart.hard.talks import draw_corpus, first_answer, second_answer
from verl_kernel.quickstart.hard.tasks import LEVELS, draw_program
from verl_kernel.reward.extract import extract_code

MIX = read_mix()


@pytest.fixture(scope="module")
def firsts():
    rng = Random(7)
    return [first_answer(draw_program(rng), MIX, rng) for _ in range(4000)]


def test_first_answers_are_right_in_half_of_the_faultless_share(firsts):
    for level in LEVELS:
        outcomes = Counter(answer.outcome for answer in firsts if answer.program.level == level)
        right = (outcomes["ok"] + outcomes["decoy"]) / outcomes.total()
        assert right == pytest.approx(MIX.faultless[level] / 2, abs=0.04)


def test_among_right_answers_the_lazy_one_comes_first(firsts):
    extents = Counter(answer.layout.extent for answer in firsts if answer.outcome == "ok")
    assert extents[Extent.LAZY] > extents[Extent.PARTIAL] > extents[Extent.FULL] > 0


def test_second_answers_repair_what_the_feedback_names(firsts):
    rng, repaired = Random(8), defaultdict(list)
    for first in firsts:
        second = second_answer(first, MIX, rng)
        repaired[first.outcome].append(second.outcome == "ok" and second.layout == first.layout)
        assert second.program == first.program
    shares = {outcome: sum(items) / len(items) for outcome, items in repaired.items()}
    assert shares["form"] > 0.7
    # The type is as unknown as before where another error came first.
    assert all(0.25 < shares[outcome] < 0.55 for outcome in ("wrong", "broken", "outside"))


def test_a_corpus_is_deterministic_holds_out_and_parses():
    talks = draw_corpus(40, MIX, Random(3), set())
    assert talks == draw_corpus(40, MIX, Random(3), set())
    assert {len(talk) for talk in talks} == {2, 4}
    for talk in talks:
        assert [message["role"] for message in talk] == ["user", "assistant"] * (len(talk) // 2)
        assert all(extract_code(message["content"], "ModelNew") for message in talk[1::2])
    unsaid = [talk for talk in talks if len(talk) == 4 and talk[2]["content"].startswith("Try again.")]
    assert unsaid
    reference = draw_program(Random(3)).reference
    assert draw_corpus(1, MIX, Random(3), {reference}) != draw_corpus(1, MIX, Random(3), set())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("decoy: 0.25", "decoy: 1.2", "decoy is 1.2; a share is a number from 0 to 1"),
        ("decoy: 0.25", "decoys: 0.25", "decoys is unknown"),
        ("5: 0.08", "6: 0.08", "faultless: 6 is unknown"),
        ("full: 0.10}", "full: 0.60}", "the shares of extent add up to 1.50"),
        ("error: {repaired: 0.80}", "error: {}", "after.error: repaired is missing"),
        ("single_turn: 0.15", "single_turn: [", "is no valid YAML (line "),
    ],
)
def test_a_bad_table_is_refused_in_a_sentence(tmp_path, old, new, said):
    path = tmp_path / "mix.yaml"
    text = DEFAULT.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_mix(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_the_decoys_share_is_a_knob():
    rng = Random(1)
    drawn = [
        first_answer(draw_program(rng, level=1), replace(MIX, decoy=1.0, faultless=dict.fromkeys(LEVELS, 1.0)), rng)
        for _ in range(20)
    ]
    assert all(answer.layout.is_decoy for answer in drawn)
