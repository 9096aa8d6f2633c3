# SPDX-License-Identifier: Apache-2.0
import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tests.generated_tasks.near import nearest, references
from tests.sentences import refused
from verl_kernel.data.families import THRESHOLD, normal_form
from verl_kernel.data.rows import SCHEMA, check_rows, write_rows
from verl_kernel.env import EvalStatus, GymOptions, Judge, Task
from verl_kernel.errors import ConfigError
from verl_kernel.generated_tasks.answers import right_answers
from verl_kernel.generated_tasks.chains import NEW_SIZES, SIZES
from verl_kernel.generated_tasks.conversations import SHORTEST, first_answer, second_answer
from verl_kernel.generated_tasks.difficulty import TABLE, read_difficulty
from verl_kernel.generated_tasks.generator import World
from verl_kernel.generated_tasks.kinds import RIGHT, SPLITS, Kind
from verl_kernel.generated_tasks.pre_tokens import pieces
from verl_kernel.generated_tasks.tokenizer import train_tokenizer
from verl_kernel.reward.extract import extract_code


@pytest.fixture(scope="module", params=["easy", pytest.param("hard", marks=pytest.mark.exhaustive)])
def world(request):
    return World(read_difficulty(request.param))


@pytest.fixture(scope="module")
def trained(world):
    return world.tasks(200, Random(1), set())


@pytest.fixture(scope="module")
def talks(world, trained):
    return world.talks(150, Random(2), {program.reference for program in trained})


@pytest.fixture(scope="module")
def tokenizer(talks):
    return train_tokenizer((message["content"] for talk in talks for message in talk), 1024)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["new_chain", "new_family"])
def test_a_new_chain_has_no_near_duplicate(world, trained, talks, split):
    validated = world.validation(split, 64, trained, Random(3))
    shown = [*(program.reference for program in trained), *references(talks)]
    assert len(validated) == 64
    assert nearest((program.reference for program in validated), shown) < THRESHOLD


def test_new_sizes_are_near_by_form_and_never_shown(world, trained):
    validated = world.validation("new_sizes", 32, trained, Random(3))
    assert {normal_form(item.reference) for item in validated} <= {normal_form(item.reference) for item in trained}
    for seen, new in zip((SIZES.rows, SIZES.cols, SIZES.depths), vars(NEW_SIZES).values(), strict=True):
        assert not {*seen} & {*new}


def test_the_same_split_is_drawn_from_training(world, trained):
    assert {*world.validation("same", 32, trained, Random(3))} <= {*trained}


def test_the_cold_start_leaves_unseen_families_to_torch(talks):
    unseen = r"torch\.cumsum|torch\.logsumexp|torch\.softmax|F\.softmin|log_softmax"
    answers = [message["content"].partition("class ModelNew") for talk in talks for message in talk[1::2]]
    assert any(re.search(unseen, forward) for _, _, forward in answers)
    assert not any(re.search(rf"{unseen}|cumsum", kernels) for kernels, _, _ in answers)


def test_rows_are_those_of_a_data_set(world, trained, tmp_path):
    for split in SPLITS:
        rows = world.rows(world.validation(split, 4, trained, Random(3)), split)
        assert list(rows[0]) == SCHEMA.names
        write_rows(rows, tmp_path / f"{split}.parquet")
        check_rows(tmp_path / f"{split}.parquet")


def test_the_same_seed_gives_the_same_world(world, trained):
    again = World(world.difficulty)
    assert again.held_out == world.held_out
    assert again.tasks(20, Random(1), set()) == trained[:20]
    assert again.talks(5, Random(2), set()) == world.talks(5, Random(2), set())


def test_talks_alternate_and_hold_programs(talks):
    assert {len(talk) for talk in talks} == {2, 4}
    for talk in talks:
        assert [message["role"] for message in talk] == ["user", "assistant"] * (len(talk) // 2)
        assert all(extract_code(message["content"]) for message in talk[1::2])


def test_answers_take_200_to_500_tokens(talks, tokenizer):
    texts = [message["content"] for talk in talks for message in talk[1::2]]
    lengths = [len(tokenizer(text)["input_ids"]) for text in texts]
    assert min(lengths) >= SHORTEST
    assert max(lengths) <= 500


def test_no_token_spans_two_pieces_of_code(talks, tokenizer):
    for text in {message["content"] for talk in talks for message in talk}:
        ends, place = set(), 0
        for piece in pieces(text):
            place += len(piece)
            ends.add(place)
        assert place == len(text)
        starts = [start for start, _ in tokenizer.backend_tokenizer.encode(text).offsets]
        assert ends - {place} <= set(starts)


def test_second_answers_repair_and_enlarge(world, trained):
    rng, row, seen = Random(4), world.difficulty, Counter()
    for program in trained:
        first = first_answer(program, row, rng)
        second = second_answer(first, row, rng)
        assert second.program == program
        if first.kind not in (*RIGHT, Kind.DECOY):
            seen["wrong"] += 1
            seen["repaired"] += second.kind in (*RIGHT, Kind.DECOY)
        if first.kind is Kind.LAZY:
            seen["lazy"] += 1
            seen["larger"] += second.share > first.share
    assert seen["repaired"] > 0.4 * seen["wrong"]
    assert seen["larger"] > 0.1 * seen["lazy"]


@pytest.mark.parametrize(("old", "new", "said"), [
    ("single_turn: 0.5", "single_turn: 1.2", "easy.single_turn: Input should be less than or equal to 1"),
    ("unsaid: 0.1", "unsaids: 0.1", "easy.unsaid: Field required"),
    ("{1: 0.10, 2: 0.45", "{6: 0.10, 2: 0.45", "easy.steps.6"),
    ("unseen: [softmax, scan]", "unseen: [softmax, scan, elementwise]", "elementwise"),
    ("{error: {repaired: 0.85}", "{error: {mended: 0.7}", "easy.after.error.mended"),
    ("{elementwise: 0.42", "{elementary: 0.42", "there is no family elementary"),
    ("easy:", "simple:", "has no row 'easy'"),
])  # fmt: skip
def test_a_bad_table_is_refused_in_a_sentence(tmp_path, old, new, said):
    path = tmp_path / "table.yaml"
    text = TABLE.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with refused(path, said, by=ConfigError):
        read_difficulty("easy", path)


@pytest.fixture(scope="module")
def sized(world):
    """A world whose tasks have three sizes each, and forty of its tasks."""
    sized = World(world.difficulty.model_copy(update={"sizes": 3}))
    return sized, sized.tasks(40, Random(1), set())


def test_a_world_may_ask_for_three_sizes_a_task(sized):
    tasks = [Task(program.reference) for program in sized[1]]
    assert {len(task.workloads) for task in tasks} == {3}
    for task in tasks:
        shapes = {shape_at(task, size) for size in task.workloads}
        assert len(shapes) == 3, task.reference


def test_new_sizes_of_such_tasks_are_all_new(sized):
    world, trained = sized
    for program in world.validation("new_sizes", 20, trained, Random(3)):
        assert len(program.further) == 2
        assert {rows for rows, _ in (program.shape[:2], *program.further)} <= set(NEW_SIZES.rows)


def test_a_prompt_that_hides_sizes_hides_all_of_them(sized):
    program = replace(sized[1][0], hidden=("sizes",))
    assert "WORKLOADS" in program.reference
    assert "WORKLOADS" not in program.prompt


def shape_at(task, size):
    """The shape of the output of a reference at a size, with those of its inputs."""
    names = {}
    exec(task.at_size(size).reference, names)
    inputs = names["get_inputs"]()
    return (*(tuple(one.shape) for one in inputs), tuple(names["Model"](*names["get_init_inputs"]())(*inputs).shape))


@pytest.mark.processes
def test_a_right_answer_is_right_at_all_sizes(sized):
    with Judge(GymOptions(device="cpu", correctness_trials=2), seed=1) as judge:
        results = [judge.evaluate(Task(one.reference), right_answers(one)[0].source) for one in sized[1][:4]]
    assert [(result.status, len(result.sizes)) for result in results] == [(EvalStatus.OK, 3)] * 4
