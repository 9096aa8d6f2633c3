# SPDX-License-Identifier: Apache-2.0
"""What varied trials change, what they keep, and where they leave inputs as they are drawn."""

import json
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.exploits.tasks import TASKS, task
from tests.tiers import thinned
from verl_kernel.env import KINDS, Task
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.reference.extreme_inputs import SIZES, SIZES_OF_SEVERAL
from verl_kernel.env.reference.input_structure import restored, structures_of
from verl_kernel.env.reference.jitter import jittered
from verl_kernel.env.reference.kinds import ENDS
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.variation import HIGHS, LARGES, LEAST_SPIKED, LOW, Variation, learn, sizes_of_spikes

CONSTANTS = [torch.zeros(4, 4), torch.ones(4, 4), torch.zeros(0, 3), torch.zeros(()), torch.ones(1, 1)]
MASKS = {
    "boolean": torch.ones(8, 8, dtype=torch.bool),
    "none set": torch.zeros(8, 8, dtype=torch.bool),
    "floating": torch.ones(8, 8),
    "integer": torch.ones(8, 8, dtype=torch.int64),
    "triangle": torch.ones(8, 8).tril(),
    "nearly all": torch.ones(64).index_fill(0, torch.tensor([3]), 0.0),
}


def learned(draw, bears=lambda tensors: True, **options):
    """What is learned of three draws of inputs, and the first of them."""
    draws = [draw(torch.Generator().manual_seed(seed)) for seed in range(3)]
    return learn(draws, bears, **options), draws[0]


def below(limit):
    """A reference that bears a first tensor of numbers below a limit."""
    return lambda tensors: bool((tensors[0].abs() < limit).all())


def test_floats_get_scales_below_and_above_one_and_signs():
    found, drawn = learned(lambda g: [torch.rand(200, generator=g) + 0.5])
    ratios = [found.apply(drawn, seed)[0] / drawn[0] for seed in range(200)]
    sizes = torch.stack([ratio.abs().mean() for ratio in ratios])
    for ratio in ratios:
        assert ratio.abs().std() < 1e-5 * ratio.abs().mean()
        assert set(ratio.sign().tolist()) == {-1, 1}
    assert LOW <= sizes.min() < 0.25
    assert 4 < sizes.max() <= HIGHS[0]
    assert 0.3 < (sizes < 1).float().mean() < 0.7
    large = (found.apply(drawn, 0, "large")[0] / drawn[0]).abs().mean()
    assert LARGES[0] / 2 <= large <= LARGES[0] * 1.001


@pytest.mark.parametrize(("written", "sizes"), [
    (1, (4096.0, 1024.0, 128.0, 32.0)), (64, (4096.0, 1024.0, 128.0, 32.0)), (65, (128.0, 32.0)),
    (1 << 18, (128.0, 32.0)),
])  # fmt: skip
def test_sums_of_many_get_larger_elements(written, sizes):
    assert sizes_of_spikes(1 << 18, written) == sizes
    assert sizes_of_spikes(LEAST_SPIKED - 1, written) == ()


@pytest.mark.parametrize("size", [4096.0, 128.0, 32.0])
def test_a_few_large_elements_weigh_as_much_as_all_others(size):
    """In a sum, where they are the largest, and in a sum of squares. Their places change, small inputs stay."""
    found, drawn = learned(lambda g: [torch.rand(size, generator=g) + 0.5 for size in (1 << 18, 99)], spikes=(size,))
    places = set()
    for seed in range(5):
        large, small = found.apply(drawn, seed)
        usual = large.abs().median()
        spikes = large.abs() > 8 * usual
        places.add(tuple(spikes.nonzero().flatten().tolist()))
        power = 1 if size > 1000 else 2
        share = (large.abs()[spikes] ** power).sum() / (large.abs() ** power).sum()
        assert 0.3 < share < 0.75
        assert (small.abs() < 8 * small.abs().median()).all()
        assert torch.equal(found.apply(drawn, seed, "large")[0].abs() > 8 * usual * 4096, torch.zeros(1 << 18) > 0)
    assert len(places) == 5


@pytest.mark.parametrize(("most", "found"), [(1e9, 4096.0), (1000.0, 128.0), (20.0, 0.0)])
def test_the_reference_sets_the_size_of_large_elements(most, found):
    variation, _ = learned(lambda g: [torch.rand(1 << 16, generator=g)], below(most), spikes=(4096.0, 128.0))
    assert variation.spikes == found


@pytest.mark.parametrize(("dtype", "has_spikes"), [("float16", True), ("bfloat16", True), ("float32", False)])
def test_only_outputs_of_16_bits_hide_a_part_of_a_sum(dtype, has_spikes):
    source = task("x", "(x * x).mean()", f"torch.randn(512, 256).to(torch.{dtype})")
    assert bool(Reference(Task(source), resolve_device("cpu")).preparation.traits.variation.spikes) is has_spikes


@pytest.mark.parametrize(("limit", "signs", "high", "large"), [
    (1e9, True, 8.0, 4096.0), (2000.0, True, 8.0, 1024.0), (100.0, True, 8.0, 64.0), (5.0, True, 4.0, 4.0),
    (1.1, True, 1.0, 1.0), (0.5, False, 1.0, 1.0),
])  # fmt: skip
def test_the_reference_sets_the_limits(limit, signs, high, large):
    def bears(tensors):
        """Numbers up to a limit; if that is small, no negative ones and no small ones neither."""
        return bool((tensors[0].abs() < max(limit, 1.1)).all()) and (limit > 1 or bool((tensors[0] > 0).all()))

    found, _ = learned(lambda g: [torch.rand(100, generator=g) + 0.05], bears)
    assert (found.signs, found.high, found.large) == (signs, high, large)


def test_what_is_not_steady_keeps_its_magnitudes():
    found, drawn = learned(lambda g: [torch.randn(40, generator=g)], is_steady=False)
    assert (found.high, found.large) == (1.0, 1.0)
    assert torch.equal(found.apply(drawn, 1, "negative")[0], -drawn[0].abs())


def test_a_reference_that_bears_nothing_gets_what_is_drawn():
    mask = torch.ones(9, dtype=torch.bool)
    found, drawn = learned(lambda g: [torch.rand(9, generator=g), mask.clone()], lambda tensors: False)
    assert all(map(torch.equal, found.apply(drawn, 1), drawn))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks_get_the_rare_value_in_some_places_and_no_third(mask):
    found, drawn = learned(lambda g: [torch.randn(8, 8, generator=g), mask.clone()])
    varied = [found.apply(drawn, seed)[1] for seed in range(5)]
    for other in varied:
        assert other.dtype == mask.dtype
        assert 1 <= (other != mask).sum().item() <= mask.numel() // 4
        assert set(other.flatten().tolist()) <= {0, 1}
    assert not all(torch.equal(varied[0], other) for other in varied)


def test_integers_without_ones_are_left_alone():
    found, drawn = learned(lambda g: [torch.randn(50, generator=g), torch.zeros(50, dtype=torch.int64)])
    assert not any(found.apply(drawn, 1, kind)[1].any() for kind in KINDS[1:])


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
def test_a_drawn_mask_gets_slices_of_none_all_and_one(dtype):
    found, drawn = learned(lambda g: [(torch.rand(20, 20, generator=g) > 0.5).to(dtype), torch.rand(3, generator=g)])
    for seed in range(10):
        counts = found.apply(drawn, seed)[0].long()
        assert any({0, 1, 19, 20} <= each for each in [set(counts.sum(axis).tolist()) for axis in (0, 1)])
    assert not found.apply(drawn, 0, "negative")[0].any()
    assert found.apply(drawn, 0, "positive")[0].all()


def test_a_vector_of_bits_gets_one_that_differs():
    found, drawn = learned(lambda g: [torch.rand(64, generator=g) > 0.5])
    assert {int(found.apply(drawn, seed)[0].sum()) for seed in range(20)} == {1, 63}


def test_indices_reach_the_ends_of_their_range_and_repeat():
    draws = []

    def draw(generator):
        draws.append(torch.randint(10, 5000, (120,), generator=generator))
        return [draws[-1]]

    variation, drawn = learned(draw)
    (found,), every = variation.apply(drawn, 3), torch.cat(draws)
    assert (found.min(), found.max()) == (every.min(), every.max())
    assert not torch.equal(found, drawn[0])
    assert found.unique(return_counts=True)[1].max() >= 5


def test_distinct_integers_get_another_order():
    variation, (drawn,) = learned(lambda g: [torch.randperm(50, generator=g)])
    (found,) = variation.apply([drawn], 3)
    assert torch.equal(found.sort().values, drawn.sort().values)
    assert not torch.equal(found, drawn)


@pytest.mark.parametrize("value", [torch.zeros(40), torch.ones(40), torch.full((40,), 1e-5), torch.arange(40.0)])
def test_inputs_that_never_change_are_drawn_anew_in_every_trial(value):
    found, _ = learned(lambda g: [value.clone()])
    one, other = (found.apply([value], seed)[0] for seed in (1, 2))
    assert found.always
    assert (one[1:] != other[1:]).all()
    assert one.unique().numel() > 30
    one, other = (found.apply([value], seed, "positive")[0] for seed in (1, 2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("kind", ["varied", "large"])
def test_one_row_is_zero_but_at_the_ends(kind):
    found, drawn = learned(lambda g: [torch.randn(6, 5, generator=g)], agree=lambda one, other: True)
    rows = set()
    for seed in range(20):
        (matrix,) = found.apply(drawn, seed, kind)
        zero = (matrix == 0).all(-1)
        rows.add(int(zero.nonzero()))
        assert zero.sum() == 1
        assert (matrix[~zero] != 0).all()
    assert len(rows) > 3
    assert (found.apply(drawn, 1, "negative")[0] != 0).all()


def test_one_row_is_small():
    found, drawn = learned(lambda g: [torch.randn(6, 50, generator=g), torch.randn(6, 50, generator=g).half()])
    rows = set()
    for seed in range(20):
        sizes, halves = (tensor.float().abs().mean(-1) for tensor in found.apply(drawn, seed))
        small = sizes < sizes.median() / 300
        rows.add(int(small.nonzero()))
        assert small.sum() == 1
        assert not (halves < halves.median() / 300).any()
    assert len(rows) > 3


def test_no_row_is_small_where_a_reference_bears_none():
    found, drawn = learned(lambda g: [torch.randn(6, 50, generator=g)], lambda x: x[0].abs().mean(-1).min() > 0.02)
    sizes = found.apply(drawn, 0)[0].abs().mean(-1)
    assert sizes.min() > sizes.median() / 300


def test_several_tensors_share_a_row_of_zeros_unless_large():
    """Where all scores are negative a key of zeros would be the maximum, as in a kernel whose maximum starts at 0."""
    shapes, differ = ((6, 5), (6, 4), (1, 3, 3), (9,)), 0
    found, drawn = learned(lambda g: [torch.randn(*shape, generator=g) for shape in shapes], agree=lambda *both: True)
    for seed in range(20):
        first, second, short, vector = found.apply(drawn, seed)
        one, other = (first == 0).all(-1), (second == 0).all(-1)
        assert (one & other).any()
        assert max(one.sum(), other.sum()) <= 2
        assert (short == 0).all(-1).all(-1).sum() == 0
        assert (short == 0).all(-1).sum() == 1
        assert (vector != 0).all()
        differ += not torch.equal(one, other)
        assert all((tensor != 0).all() for tensor in found.apply(drawn, seed, "large")[:2])
    assert differ > 10


def test_rows_of_next_to_nothing_are_those_of_zeros():
    """They show whether a reference bears zeros; the second tensor's rows differed once."""
    found, tensors = learned(lambda g: [torch.randn(16, 8, generator=g) for _ in range(2)])
    zeros, tiny = (found.with_a_row_of(size, tensors, 0) for size in (0.0, 1e-30))
    for one, other in zip(zeros, tiny, strict=True):
        assert torch.equal((one == 0).all(-1), (other.abs() < 1e-20).all(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_row_is_zero_where_tiny_numbers_differ(dtype):
    """The second set of inputs has tiny numbers in the place of zeros, none of them lost to rounding."""

    def agree(one, other):
        return bool(((one[0] == 0).all(-1) == (other[0] == 0).all(-1)).all())

    found, drawn = learned(lambda g: [torch.randn(4, 5, generator=g).to(dtype)], agree=agree)
    assert not found.zeros
    assert (found.apply(drawn, 1)[0] != 0).all()


@pytest.mark.parametrize("shape", [(500,), (20, 30), (4, 5, 6)])
@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
def test_at_the_ends_every_number_is_far_from_zero_on_one_side(draw, shape):
    found, drawn = learned(lambda g: [draw(shape, generator=g)])
    (negative,), (positive,) = (found.apply(drawn, 1, kind) for kind in ("negative", "positive"))
    assert (negative <= -SIZES[0]).all()
    assert (positive >= SIZES[0]).all()
    assert positive.unique().numel() > 0.9 * drawn[0].numel()


@pytest.mark.parametrize(("limit", "least"), [(1e9, SIZES[0]), (5000.0, SIZES[1]), (100.0, 0.0)])
def test_the_reference_says_how_far_from_zero(limit, least):
    variation, drawn = learned(lambda g: [torch.rand(50, generator=g) + 0.5], below(limit))
    (found,) = variation.apply(drawn, 1, "negative")
    assert least < found.abs().min()
    assert found.abs().max() < limit
    assert (found < 0).all()


def test_a_tensor_that_must_stay_positive_does():
    found, drawn = learned(
        lambda g: [torch.randn(40, generator=g), torch.rand(40, generator=g)], lambda x: bool((x[1] >= 0).all())
    )
    free, bound = found.apply(drawn, 1, "negative")
    assert (free < 0).all()
    assert torch.equal(bound, drawn[1])


def test_several_tensors_go_to_sides_of_their_own():
    found, drawn = learned(lambda g: [torch.randn(20, 40, generator=g), torch.rand(20, 40, generator=g)])
    sides = set()
    for seed in range(9):
        first, second = (tensor[:, [0, 1]] for tensor in found.apply(drawn, seed, "large"))
        far = int(not first[:, 0].abs().min() > SIZES_OF_SEVERAL[0])
        sides.add((int(first[:, far].sign().unique()), int(second[:, far].sign().unique()), far))
        near = first[:, 1 - far]
        assert near.abs().max() < 5 * LARGES[0]
        assert near.abs().min() < SIZES_OF_SEVERAL[0]
    assert sides == {(1, -1, 0), (-1, 1, 0), (1, -1, 1), (-1, 1, 1)}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_ends_are_finite_in_every_type(dtype):
    variation, drawn = learned(lambda g: [torch.randn(400, generator=g).to(dtype)], below(torch.inf))
    (found,) = variation.apply(drawn, 1, "positive")
    assert found.dtype == dtype
    assert found.isfinite().all()
    assert found.min() > 500


def test_integers_of_both_signs_get_one_sign():
    found, drawn = learned(lambda g: [torch.randint(least, 101, (999,), generator=g) for least in (-100, 0)])
    low, high = (found.apply(drawn, 1, kind) for kind in ENDS)
    assert [int(low[0].max()), int(high[0].min()), int(low[1].max()), int(high[1].min())] == [-50, 50, 25, 75]
    assert int(low[0].min()) == -100
    assert int(high[1].max()) == 100


def test_slices_of_a_varied_tensor_are_of_one_sign():
    found, drawn = learned(lambda g: [torch.rand(9, 50, generator=g)])
    for seed in range(20):
        sign = found.apply(drawn, seed)[0].sign()
        assert any({-1.0, 1.0} <= side for side in [set(sign.mean(axis).tolist()) for axis in (0, 1)])


@pytest.mark.parametrize("draw", [
    lambda g: [torch.randn(9, generator=g), torch.randint(0, 5, (9,), generator=g)],
    lambda g: [torch.randn(12, 12, generator=g).tril()],
])  # fmt: skip
def test_it_survives_json(draw):
    found, _ = learned(draw)
    assert TypeAdapter(Variation).validate_python(json.loads(json.dumps(asdict(found)))) == found


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


def random(seed, *shape):
    return torch.randn(*(shape or (12, 12)), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("draw", [
    lambda seed: random(seed, 4, 50).sort(-1).values, lambda seed: random(seed).softmax(-1),
    lambda seed: random(seed).softmax(-1).half(), lambda seed: random(seed).log_softmax(-1),
    lambda seed: torch.nn.functional.normalize(random(seed), dim=-1), lambda seed: torch.eye(12).long(),
])  # fmt: skip
def test_a_structure_is_that_of_every_draw(draw):
    """What trials do with it: test_relations.py."""
    draws = [draw(seed) for seed in (1, 2)]
    assert structures_of(draws)
    assert not structures_of([*draws, random(3, *draws[0].shape).to(draws[0].dtype)])


@given(st.integers(0, 1000))
def test_random_numbers_have_no_structure(seed):
    assert structures_of([random(seed), random(seed + 1)]) == ()


@pytest.mark.parametrize("draws", [*([made, made] for made in CONSTANTS), [random(1).relu(), random(2).relu()]])
def test_constants_and_zeros_at_other_places_have_none(draws):
    assert structures_of(draws) == ()


def test_a_row_without_numbers_stays_as_it_was_drawn():
    drawn = random(1).softmax(-1)
    assert torch.equal(restored(["distribution"], drawn, torch.zeros_like(drawn)), drawn)
