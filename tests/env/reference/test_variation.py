# SPDX-License-Identifier: Apache-2.0
"""What varied trials change, what they keep, and where they leave inputs as they are drawn."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.exploits.tasks import TASKS
from tests.tiers import thinned
from verl_kernel.env import KINDS, Task
from verl_kernel.env.reference.ends import SIZES, SIZES_OF_SEVERAL
from verl_kernel.env.reference.jitter import jittered
from verl_kernel.env.reference.kinds import ENDS
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.structure import restored, structures_of
from verl_kernel.env.reference.variation import HIGHS, LARGES, LOW, Variation, learn


def drawn(draw, count=3):
    return [draw(torch.Generator().manual_seed(seed)) for seed in range(count)]


def bears_all(tensors):
    return True


def test_floats_get_scales_below_and_above_one_and_signs():
    draws = drawn(lambda g: [torch.rand(200, generator=g) + 0.5])
    found = learn(draws, bears_all)
    ratios = [found.apply(draws[0], seed)[0] / draws[0][0] for seed in range(200)]
    sizes = torch.stack([ratio.abs().mean() for ratio in ratios])
    for ratio in ratios:
        assert ratio.abs().std() < 1e-5 * ratio.abs().mean()
        assert set(ratio.sign().tolist()) == {-1, 1}
    assert LOW <= sizes.min() < 0.25
    assert 4 < sizes.max() <= HIGHS[0]
    assert 0.3 < (sizes < 1).float().mean() < 0.7
    large = (found.apply(draws[0], 0, "large")[0] / draws[0][0]).abs().mean()
    assert LARGES[0] / 2 <= large <= LARGES[0] * 1.001


@pytest.mark.parametrize(
    ("limit", "signs", "high", "large"),
    [
        *((1e9, True, 8.0, 4096.0), (2000.0, True, 8.0, 1024.0), (100.0, True, 8.0, 64.0), (5.0, True, 4.0, 1.0)),
        *((1.1, True, 1.0, 1.0), (0.5, False, 1.0, 1.0)),
    ],
)
def test_the_reference_sets_the_limits(limit, signs, high, large):
    def bears(tensors):
        """Numbers up to a limit; if that is small, no negative ones and no small ones neither."""
        return bool((tensors[0].abs() < max(limit, 1.1)).all()) and (limit > 1 or bool((tensors[0] > 0).all()))

    draws = drawn(lambda g: [torch.rand(100, generator=g) + 0.05])
    found = learn(draws, bears)
    assert (found.signs, found.high, found.large) == (signs, high, large)


def test_what_is_not_steady_is_not_enlarged():
    found = learn(drawn(lambda g: [torch.rand(9, generator=g)]), bears_all, is_steady=False)
    assert (found.high, found.large) == (1.0, 1.0)


def test_a_reference_that_bears_nothing_gets_what_is_drawn():
    draws = drawn(lambda g: [torch.rand(9, generator=g), torch.ones(9, dtype=torch.bool)])
    found = learn(draws, lambda tensors: False)
    assert all(map(torch.equal, found.apply(draws[0], 1), draws[0]))


MASKS = {
    "boolean": torch.ones(8, 8, dtype=torch.bool),
    "none set": torch.zeros(8, 8, dtype=torch.bool),
    "floating": torch.ones(8, 8),
    "integer": torch.ones(8, 8, dtype=torch.int64),
    "triangle": torch.ones(8, 8).tril(),
    "nearly all": torch.ones(64).index_fill(0, torch.tensor([3]), 0.0),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_get_the_rare_value_in_some_places_and_no_third(name):
    mask = MASKS[name]
    draws = drawn(lambda g: [torch.randn(8, 8, generator=g), mask.clone()])
    found = learn(draws, bears_all)
    varied = [found.apply(draws[0], seed)[1] for seed in range(5)]
    for other in varied:
        changed = (other != mask).sum().item()
        assert other.dtype == mask.dtype
        assert 1 <= changed <= mask.numel() // 4
        assert set(other.flatten().tolist()) <= {0, 1}
    assert not all(torch.equal(varied[0], other) for other in varied)


def test_integers_without_ones_are_left_alone():
    draws = drawn(lambda g: [torch.randn(50, generator=g), torch.zeros(50, dtype=torch.int64)])
    found = learn(draws, bears_all)
    assert not any(found.apply(draws[0], 1, kind)[1].any() for kind in KINDS[1:])


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
def test_a_drawn_mask_gets_slices_of_none_all_and_one(dtype):
    draws = drawn(lambda g: [(torch.rand(20, 20, generator=g) > 0.5).to(dtype), torch.rand(3, generator=g)])
    found = learn(draws, bears_all)
    for seed in range(10):
        counts = found.apply(draws[0], seed)[0].long()
        either = [set(counts.sum(axis).tolist()) for axis in (0, 1)]
        assert any({0, 1, 19, 20} <= each for each in either)
    assert not found.apply(draws[0], 0, "negative")[0].any()
    assert found.apply(draws[0], 0, "positive")[0].all()


def test_a_vector_of_bits_gets_one_that_differs():
    draws = drawn(lambda g: [torch.rand(64, generator=g) > 0.5])
    sums = {int(learn(draws, bears_all).apply(draws[0], seed)[0].sum()) for seed in range(20)}
    assert sums == {1, 63}


def test_indices_reach_the_ends_of_their_range_and_repeat():
    draws = drawn(lambda g: [torch.randint(10, 5000, (60,), generator=g).sort().values.repeat_interleave(2)])
    low, high = min(int(t.min()) for (t,) in draws), max(int(t.max()) for (t,) in draws)
    found = learn(draws, bears_all).apply(draws[0], 3)[0]
    assert (found.min(), found.max()) == (low, high)
    assert not torch.equal(found, draws[0][0])
    assert (found[1:] >= found[:-1]).all(), "what was always sorted stays so"
    assert found.unique(return_counts=True)[1].max() >= 5


@pytest.mark.parametrize("draw", [lambda g: torch.randperm(50, generator=g), lambda g: torch.arange(0, 99, 3)])
def test_distinct_integers_get_another_order(draw):
    """A permutation, offsets of rows: repeated they would be something else."""
    draws = drawn(lambda g: [draw(g)])
    is_sorted = bool((draws[0][0].diff() > 0).all())
    found = learn(draws, bears_all).apply(draws[0], 3)[0]
    assert torch.equal(found.sort().values, draws[0][0].sort().values)
    assert torch.equal(found, draws[0][0]) is is_sorted


@pytest.mark.parametrize("value", [torch.zeros(40), torch.ones(40), torch.full((40,), 1e-5), torch.arange(40.0)])
def test_inputs_that_never_change_are_drawn_anew_in_every_trial(value):
    found = learn(drawn(lambda g: [value.clone()]), bears_all)
    one, other = found.apply([value], 1)[0], found.apply([value], 2)[0]
    assert found.always
    assert (one[1:] != other[1:]).all()
    assert one.unique().numel() > 30


@pytest.mark.parametrize("kind", ["varied", "large"])
def test_one_row_is_zero_but_at_the_ends(kind):
    draws = drawn(lambda g: [torch.randn(6, 5, generator=g)])
    found, rows = learn(draws, bears_all, agree=lambda one, other: True), set()
    for seed in range(20):
        (matrix,) = found.apply(draws[0], seed, kind)
        zero = (matrix == 0).all(-1)
        rows.add(int(zero.nonzero()))
        assert zero.sum() == 1
        assert (matrix[~zero] != 0).all()
    assert len(rows) > 3
    assert (found.apply(draws[0], 1, "negative")[0] != 0).all()


def test_several_tensors_share_a_row_of_zeros():
    draws = drawn(lambda g: [torch.randn(*shape, generator=g) for shape in ((6, 5), (6, 4), (1, 3, 3), (9,))])
    found, differ = learn(draws, bears_all, agree=lambda one, other: True), 0
    for seed in range(20):
        first, second, short, vector = found.apply(draws[0], seed)
        one, other = (first == 0).all(-1), (second == 0).all(-1)
        assert (one & other).any()
        assert max(one.sum(), other.sum()) <= 2
        assert (short == 0).all(-1).all(-1).sum() == 0
        assert (short == 0).all(-1).sum() == 1
        assert (vector != 0).all()
        differ += not torch.equal(one, other)
    assert differ > 10


def test_several_large_tensors_have_no_row_of_zeros():
    """Where all scores are negative a key of zeros would be the maximum, as in a kernel whose maximum starts at 0."""
    draws = drawn(lambda g: [torch.randn(6, 5, generator=g), torch.randn(6, 4, generator=g)])
    found = learn(draws, bears_all, agree=lambda one, other: True)
    for seed in range(20):
        assert all((tensor != 0).all() for tensor in found.apply(draws[0], seed, "large"))


def test_rows_of_next_to_nothing_are_those_of_zeros():
    """They show whether a reference bears zeros; the second tensor's rows differed once."""
    tensors = [torch.randn(16, 8), torch.randn(16, 8)]
    found = learn(drawn(lambda g: [torch.randn(16, 8, generator=g) for _ in tensors]), bears_all)
    zeros, tiny = (found.with_a_row_of(size, tensors, 0) for size in (0.0, 1e-30))
    for one, other in zip(zeros, tiny, strict=True):
        assert torch.equal((one == 0).all(-1), (other.abs() < 1e-20).all(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_row_is_zero_where_tiny_numbers_differ(dtype):
    """The second set of inputs has tiny numbers in the place of zeros, none of them lost to rounding."""
    draws = drawn(lambda g: [torch.randn(4, 5, generator=g).to(dtype)])

    def agree(one, other):
        return bool(((one[0] == 0).all(-1) == (other[0] == 0).all(-1)).all())

    found = learn(draws, bears_all, agree=agree)
    assert not found.zeros
    assert (found.apply(draws[0], 1)[0] != 0).all()


@pytest.mark.parametrize("shape", [(500,), (20, 30), (4, 5, 6)])
@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
def test_at_the_ends_every_number_is_far_from_zero_on_one_side(draw, shape):
    draws = drawn(lambda g: [draw(shape, generator=g)])
    found = learn(draws, bears_all)
    assert (found.apply(draws[0], 1, "negative")[0] <= -SIZES[0]).all()
    assert (found.apply(draws[0], 1, "positive")[0] >= SIZES[0]).all()
    assert found.apply(draws[0], 1, "positive")[0].unique().numel() > 0.9 * draws[0][0].numel()


@pytest.mark.parametrize(("limit", "least"), [(1e9, SIZES[0]), (5000.0, SIZES[1]), (100.0, 0.0)])
def test_the_reference_says_how_far_from_zero(limit, least):
    draws = drawn(lambda g: [torch.rand(50, generator=g) + 0.5])
    found = learn(draws, lambda tensors: bool((tensors[0].abs() < limit).all())).apply(draws[0], 1, "negative")[0]
    assert least < found.abs().min()
    assert found.abs().max() < limit
    assert (found < 0).all()


def test_a_tensor_that_must_stay_positive_does():
    draws = drawn(lambda g: [torch.randn(40, generator=g), torch.rand(40, generator=g)])
    found = learn(draws, lambda tensors: bool((tensors[1] >= 0).all()))
    free, bound = found.apply(draws[0], 1, "negative")
    assert (free < 0).all()
    assert torch.equal(bound, draws[0][1])


def test_several_tensors_go_to_sides_of_their_own():
    draws, sides = drawn(lambda g: [torch.randn(20, 40, generator=g), torch.rand(20, 40, generator=g)]), set()
    found = learn(draws, bears_all)
    for seed in range(9):
        first, second = (tensor[:, [0, 1]] for tensor in found.apply(draws[0], seed, "large"))
        far = int(not first[:, 0].abs().min() > SIZES_OF_SEVERAL[0])
        sides.add((int(first[:, far].sign().unique()), int(second[:, far].sign().unique()), far))
        near = first[:, 1 - far]
        assert near.abs().max() < 5 * LARGES[0]
        assert near.abs().min() < SIZES_OF_SEVERAL[0]
    assert sides == {(1, -1, 0), (-1, 1, 0), (1, -1, 1), (-1, 1, 1)}


def test_what_is_not_steady_keeps_its_magnitudes_at_the_ends():
    draws = drawn(lambda g: [torch.randn(40, generator=g)])
    found = learn(draws, bears_all, is_steady=False)
    assert torch.equal(found.apply(draws[0], 1, "negative")[0], -draws[0][0].abs())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_ends_are_finite_in_every_type(dtype):
    draws = drawn(lambda g: [torch.randn(400, generator=g).to(dtype)])
    found = learn(draws, lambda tensors: bool(tensors[0].isfinite().all())).apply(draws[0], 1, "positive")[0]
    assert found.dtype == dtype
    assert found.isfinite().all()
    assert found.min() > 500


def test_integers_of_both_signs_get_one_sign():
    draws = drawn(lambda g: [torch.randint(-100, 101, (999,), generator=g), torch.randint(0, 101, (999,), generator=g)])
    found = learn(draws, bears_all)
    low, high = (found.apply(draws[0], 1, kind) for kind in ENDS)
    assert [int(low[0].max()), int(high[0].min()), int(low[1].max()), int(high[1].min())] == [-50, 50, 25, 75]
    assert int(low[0].min()) == -100
    assert int(high[1].max()) == 100


def test_constant_inputs_are_drawn_anew_at_the_ends():
    fixed = torch.arange(40.0)
    found = learn(drawn(lambda g: [fixed.clone()]), bears_all)
    assert not torch.equal(found.apply([fixed], 1, "positive")[0], found.apply([fixed], 2, "positive")[0])


def test_slices_of_a_varied_tensor_are_of_one_sign():
    draws = drawn(lambda g: [torch.rand(9, 50, generator=g)])
    signs = [learn(draws, bears_all).apply(draws[0], seed)[0].sign() for seed in range(20)]
    for sign in signs:
        sides = [set(sign.mean(axis).tolist()) for axis in (0, 1)]
        assert any({-1.0, 1.0} <= side for side in sides)


def test_it_survives_json():
    found = learn(drawn(lambda g: [torch.randn(9, generator=g), torch.randint(0, 5, (9,), generator=g)]), bears_all)
    assert Variation.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_jitter_is_small_and_leaves_zero_one_and_integers():
    tensors = [torch.randn(99), torch.tensor([0.0, 1.0]), torch.arange(5), torch.randn(9).half()]
    moved = jittered(tensors)
    assert torch.equal(moved[1], tensors[1])
    assert torch.equal(moved[2], tensors[2])
    relative = (moved[0].double() / tensors[0].double() - 1).abs()
    assert relative.min() > 5e-7
    assert relative.max() < 2e-6
    assert moved[3].dtype == torch.float16


@pytest.mark.parametrize("mark", thinned(range(6), 6))
@pytest.mark.parametrize("draw", ["torch.randn(16, 128)", "torch.rand(16, 128)", "torch.rand(64, 2048)"])
def test_how_far_a_trial_goes_does_not_hang_on_a_tasks_text(device, draw, mark):
    """A softmax without the maximum subtracted overflows there: two near maxima are few elements among many."""
    task = Task(TASKS["softmax"].replace("torch.randn(16, 128)", draw).replace("* self.w", "") + f"# {mark}\n")
    variation = Reference(task, device).preparation.traits.variation
    assert (variation.large, {reach for _, reach in variation.ends}) == (LARGES[0], {(SIZES[0],)})


SIZE = 12


def random(seed, *shape):
    return torch.randn(*(shape or (SIZE, SIZE)), generator=torch.Generator().manual_seed(seed))


def symmetric(seed):
    return random(seed) + random(seed).mT


def one_hot(seed):
    places = torch.randint(SIZE, (SIZE,), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.one_hot(places, SIZE).float()


MADE = {
    "sorted": lambda seed: random(seed, 4, 50).sort(-1).values,
    "sorted vector": lambda seed: random(seed, 50).sort().values,
    "symmetric": symmetric,
    "triangular": lambda seed: random(seed).tril(),
    "diagonal": lambda seed: random(seed).diag().diag(),
    "distribution": lambda seed: random(seed).softmax(-1),
    "halves of a distribution": lambda seed: random(seed).softmax(-1).half(),
    "log distribution": lambda seed: random(seed).log_softmax(-1),
    "unit rows": lambda seed: torch.nn.functional.normalize(random(seed), dim=-1),
    "one-hot": one_hot,
    "one-hot integers": lambda seed: one_hot(seed).long(),
    "identity": lambda seed: torch.eye(SIZE),
}
HOLDS = {
    "sorted": lambda x: (x[..., 1:] >= x[..., :-1]).all(),
    "sorted vector": lambda x: (x[1:] >= x[:-1]).all(),
    "symmetric": lambda x: torch.equal(x, x.mT),
    "triangular": lambda x: (x.triu(1) == 0).all(),
    "diagonal": lambda x: torch.equal(x, x.diag().diag()),
    "distribution": lambda x: (x >= 0).all() and torch.allclose(x.sum(-1), torch.ones(()), atol=1e-5),
    "halves of a distribution": lambda x: (
        (x >= 0).all() and torch.allclose(x.float().sum(-1), torch.ones(()), atol=1e-2)
    ),
    "log distribution": lambda x: torch.allclose(x.exp().sum(-1), torch.ones(()), atol=1e-5),
    "unit rows": lambda x: torch.allclose(x.square().sum(-1), torch.ones(()), atol=1e-5),
    "one-hot": lambda x: ((x == 0) | (x == 1)).all() and (x.sum(-1) == 1).all(),
    "one-hot integers": lambda x: ((x == 0) | (x == 1)).all() and (x.sum(-1) == 1).all(),
    "identity": lambda x: ((x == 0) | (x == 1)).all() and (x.sum(-1) == 1).all(),
}


def learned(make):
    return learn([[make(seed)] for seed in (1, 2, 3)], lambda tensors: True)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "drawn"])
def test_every_trial_keeps_it(name, kind):
    variation = learned(MADE[name])
    assert all(HOLDS[name](variation.apply([MADE[name](seed)], seed, kind)[0]) for seed in range(8))


@pytest.mark.parametrize("name", MADE)
def test_some_trial_differs_from_the_draw(name):
    variation, drawn = learned(MADE[name]), MADE[name](5)
    assert any(
        not torch.equal(variation.apply([drawn], seed, kind)[0], drawn) for seed in range(4) for kind in KINDS[1:]
    )


@pytest.mark.parametrize("name", MADE)
def test_it_is_found_in_every_draw_or_not_at_all(name):
    draws = [MADE[name](seed) for seed in (1, 2)]
    other = random(3, *draws[0].shape).to(draws[0].dtype)
    assert structures_of(draws)
    assert not structures_of([*draws, other])


@given(st.integers(0, 1000))
def test_random_numbers_have_no_structure(seed):
    assert structures_of([random(seed), random(seed + 1)]) == ()


@pytest.mark.parametrize(
    "made", [torch.zeros(4, 4), torch.ones(4, 4), torch.zeros(0, 3), torch.zeros(()), torch.ones(1, 1)]
)
def test_constants_have_none(made):
    assert structures_of([made, made]) == ()


def test_zeros_at_other_places_in_each_draw_are_none():
    assert structures_of([random(1).relu(), random(2).relu()]) == ()


def test_a_row_without_numbers_stays_as_it_was_drawn():
    drawn = random(1).softmax(-1)
    assert torch.equal(restored(["distribution"], drawn, torch.zeros_like(drawn)), drawn)


def test_structures_survive_a_file():
    variation = learned(MADE["triangular"])
    assert Variation.from_json(variation.to_json()) == variation
