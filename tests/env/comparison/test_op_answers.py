# SPDX-License-Identifier: Apache-2.0
"""When samples of op results show that torch had an expected output: whole, in another order, or in parts."""

import pytest
import torch

from verl_kernel.env.comparison.op_answers import hold, telling_seed
from verl_kernel.env.devices.op_results import OpResults
from verl_kernel.env.ipc.op_samples import MOST, OpSample, places, read_samples

SEED = 3
DRAWN = torch.Generator().manual_seed(0)
Y = torch.softmax(torch.randn(64, 100, generator=DRAWN), 1)
OTHER = torch.softmax(torch.randn(64, 100, generator=DRAWN), 1)
IMAGES = torch.randn(4, 3, 10, 12, generator=DRAWN)
ONE_HOT, OTHER_ONE_HOT = (torch.eye(100)[torch.randint(100, (64,), generator=DRAWN)] for _ in range(2))
SCALAR = torch.tensor(0.37)


def sampled(*results: torch.Tensor) -> list[OpSample]:
    with OpResults(SEED) as mode:
        for result in results:
            result.clone(memory_format=torch.preserve_format)
    return mode.samples()


HELD = {
    "the output": ([Y], [Y]),
    "a more precise one": ([Y], [Y.bfloat16()]),
    "one that is rounded otherwise": ([Y * (1 + 1e-6)], [Y]),
    "its columns in memory one after the other": ([Y.t().contiguous()], [Y]),
    "a view of it in another order": ([Y.t()], [Y.t()]),
    "channels last": ([IMAGES.permute(0, 2, 3, 1).contiguous()], [IMAGES]),
    "two halves": ([Y[:30], OTHER, Y[30:]], [Y]),
    "a larger one": ([torch.cat([OTHER[:20], Y])], [Y]),
    "both outputs": ([Y, IMAGES], [IMAGES, Y]),
    "indices": ([torch.arange(100)], [torch.arange(100)]),
    "a number": ([SCALAR], [SCALAR]),
}
NOT_HELD = {
    "nothing": ([], [Y]),
    "another output": ([OTHER], [Y]),
    "one that is a thousandth larger": ([Y * 1.001], [Y]),
    "logarithms": ([Y.log()], [Y]),
    "one half": ([Y[:30], Y[:30]], [Y]),
    "a number of eight": ([torch.tensor([80.0, 81, 82, 83, 84, 85, 6.5, 87])], [torch.arange(64.0) + 0.5]),
    "one of two outputs": ([Y], [IMAGES, Y]),
    "ones": ([torch.ones(64, 100)], [torch.ones(64, 100)]),
    "a number that any program has": ([torch.tensor(1.0)], [torch.tensor(1.0)]),
    "zeros at the same places": ([OTHER_ONE_HOT], [ONE_HOT]),
    "a mask": ([Y > 0.01], [Y > 0.01]),
    "complex numbers": ([torch.randn(9) * 1j], [torch.randn(9) * 1j]),
}


def test_a_copy_holds_no_answer_that_differs_at_few_places():
    assert not hold(sampled(OTHER), [OTHER.index_fill(1, torch.tensor([7]), 0.5)], SEED, [OTHER])


def test_places_are_drawn_where_an_answer_is_no_input():
    changed = OTHER.flatten().index_fill(0, torch.tensor([5, 77]), 0.5)
    assert {5, 77} & {*places(telling_seed(SEED, [changed], [OTHER]), changed.numel())}


def test_complex_outputs_have_no_telling_seed():
    assert telling_seed(SEED, [torch.randn(9) * 1j], [OTHER]) == SEED


def test_an_answer_is_held_where_half_of_it_is_an_input():
    half = torch.where(Y.median() < Y, Y, OTHER)
    assert hold(sampled(half), [half], SEED, [OTHER])


def test_an_output_that_is_an_input_hides_no_other_answer():
    assert hold(sampled(Y), [OTHER, Y], SEED, [OTHER])


def test_an_output_that_is_an_input_may_be_held_alone():
    assert hold(sampled(OTHER), [OTHER], SEED, [OTHER])


def test_parts_show_together_where_an_answer_is_no_input():
    answer = OTHER.clone()
    answer[:32] = Y[:32]
    assert hold(sampled(answer[:32], answer[32:]), [answer], SEED, [OTHER])


@pytest.mark.parametrize("name", [*HELD, *NOT_HELD])
def test_it_is_known_whether_torch_had_the_answer(name):
    results, expected = {**HELD, **NOT_HELD}[name]
    assert hold(sampled(*results), expected, SEED) is (name in HELD)


def test_samples_are_those_of_other_places_for_another_seed():
    assert not hold(sampled(Y), [Y], SEED + 1)


def test_an_answer_among_many_results_is_mostly_found():
    """A random sample is kept: of a few hundred results most."""
    with OpResults(SEED) as mode:
        for _ in range(MOST + 40):
            OTHER + 1.0
    assert len(mode.samples()) == MOST


def test_views_and_new_memory_are_no_results():
    with OpResults(SEED) as mode:
        torch.empty(8, 8).t()[1:].unsqueeze(0)
    assert mode.samples() == []


def test_what_is_changed_in_place_is_a_result():
    tensor = torch.zeros(64, 100)
    with OpResults(SEED) as mode:
        torch._foreach_add_([tensor], [Y])
    assert hold(mode.samples(), [Y], SEED)


def test_samples_survive_their_message():
    samples = sampled(Y, torch.tensor([float("nan"), float("inf")]))
    back = read_samples([sample.to_json() for sample in samples])
    assert [(sample.size, len(sample.values)) for sample in back] == [(6400, 64), (2, 2)]
    assert back[0] == samples[0]


@pytest.mark.parametrize("forged", [
    None, {}, [[]], [[0, []]], [[2, [1.0]]], [[1, ["1"]]], [[1, [True]]], [[-1, []]], [[1.0, [1.0]]], [[1]],
    [[1, [1.0]]] * (MOST + 1),
], ids=range(11))  # fmt: skip
def test_forged_samples_are_refused(forged):
    with pytest.raises(ValueError, match="sample"):
        read_samples(forged)
