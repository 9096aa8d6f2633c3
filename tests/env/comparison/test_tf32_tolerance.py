# SPDX-License-Identifier: Apache-2.0
"""The room of TF32: wide enough for any rounding of factors, too narrow for other errors; oracles in float64."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_kernel.env.comparison import tf32_tolerance as module
from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.comparison.tf32 import Rounding, rounded
from verl_kernel.env.comparison.tf32_tolerance import RUNS, limits, rooms, smoothed

LEAST = 1e-3
"""Usual of products (`scale.SHARP`)."""
DIRECTIONS = ["zero", "nearest", "even", "random", "mixed"]


def rng(seed):
    return torch.Generator().manual_seed(seed)


def toward(x, direction, seed=0):
    if direction == "zero":
        return rounded(x)
    if direction == "nearest":
        return rounded(x, 0x1000)
    if direction == "even":
        return rounded(x, 0x0FFF + ((x.view(torch.int32) >> 13) & 1))
    coins = torch.randint(0, 2, x.shape, generator=rng(seed), dtype=torch.int32)
    return torch.where(coins.bool(), rounded(x), rounded(x, 0x1FFF if direction == "random" else 0x1000))


def room_of(function, *inputs, least=LEAST):
    expected = function(*inputs)

    def run(seed):
        with torch.no_grad(), Rounding(seed) as rounding:
            output = function(*inputs)
        return [output] if rounding.was_used else None

    found = rooms([expected], run, least)
    assert found is not None
    return expected, found[0]


def accepts(expected, actual, room, profile="scaled"):
    return compare(expected, actual.to(expected.dtype), profile, LEAST, room).ok


def operands(shape, seed, decades, kind):
    """Factors whose rows and columns differ by decades, with or without signs."""
    m, k, n = shape
    draw = {"normal": torch.randn, "uniform": torch.rand}[kind]
    a, b = draw(m, k, generator=rng(seed)), draw(k, n, generator=rng(seed + 1))
    rows, columns = (torch.rand(size, generator=rng(seed + place)) for place, size in ((2, (m, 1)), (3, (1, n))))
    return a * 10 ** (decades * rows), b * 10 ** (decades * columns)


SIGNS = st.sampled_from(["normal", "uniform"])
SHAPES = st.tuples(*(st.sampled_from([1, 2, 7, 16, 33, 64, 100]) for _ in range(3)))


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(0, 10**6), st.floats(0, 2), SIGNS, st.sampled_from(DIRECTIONS))
def test_a_product_of_rounded_factors_is_accepted(shape, seed, decades, kind, direction):
    a, b = operands(shape, seed, decades, kind)
    expected, room = room_of(torch.mm, a, b)
    other = toward(a, direction, seed).double() @ toward(b, direction, seed + 1).double()
    assert accepts(expected, other, room)
    assert accepts(expected, expected, room)


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(0, 10**6), st.floats(0, 2), SIGNS)
def test_no_room_exceeds_a_few_times_the_bound_of_first_order(shape, seed, decades, kind):
    """No rounding of factors moves an element by more than sum_k |a_ik| |b_kj| 2**-9.

    Where rows are short, the moves of neighbours stand in for an element's own.
    """
    a, b = operands(shape, seed, 0 if min(shape) < 16 else decades, kind)
    _, room = room_of(torch.mm, a, b)
    bound = (a.double().abs() @ b.double().abs()) * 2**-9
    widest = torch.maximum(room.below, room.above).double()
    assert (widest <= 12 * smoothed(bound.float() ** 2).double().sqrt().maximum(bound)).all()


@settings(deadline=None, max_examples=40)
@given(
    st.tuples(*(st.sampled_from([16, 33, 64, 100]) for _ in range(3))), st.integers(0, 10**6),
    st.floats(0, 1), SIGNS,
)  # fmt: skip
def test_ten_times_the_statistical_error_of_tf32_is_refused(shape, seed, decades, kind):
    """The variance of an element is a sum over k, since roundings are independent of each other."""
    a, b = operands(shape, seed, decades, kind)
    expected, room = room_of(torch.mm, a, b)
    squares = [torch.where(x != 0, 2.0 ** (2 * (x.double().abs().log2().floor() - 10)) / 3, 0) for x in (a, b)]
    size = (squares[0] @ b.double() ** 2 + a.double() ** 2 @ squares[1]).sqrt()
    noise = torch.randn(expected.shape, generator=rng(seed + 9), dtype=torch.float64)
    assert accepts(expected, expected + size * noise.clamp(-4, 4), room)
    assert not accepts(expected, expected + 10 * size * noise, room)


@pytest.mark.parametrize(("kind", "k"), [("normal", 32), ("normal", 2048), ("uniform", 32), ("uniform", 256)])
def test_factors_of_eight_bits_are_refused(kind, k):
    a, b = operands((128, k, 128), k, 0, kind)
    expected, room = room_of(torch.mm, a, b)
    assert accepts(expected, rounded(a) @ rounded(b), room)
    assert not accepts(expected, a.bfloat16().double() @ b.bfloat16().double(), room)


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_accumulation_in_half_precision_is_refused(kind):
    a, b = operands((128, 512, 128), 5, 0, kind)
    expected, room = room_of(torch.mm, a, b)
    total = torch.zeros(128, 128, dtype=torch.float16)
    for part in range(0, 512, 16):
        total += (a[:, part : part + 16] @ b[part : part + 16]).half()
    assert not accepts(expected, total.float(), room)


def linear(x, w, bias):
    return torch.relu(F.linear(x, w, bias))


DROPPED = {
    "a bias of a twentieth": lambda x, w, bias: torch.relu(x @ w.T),
    "the last of 256 columns": lambda x, w, bias: linear(x[:, :-1], w[:, :-1], bias),
    "the activation": lambda x, w, bias: x @ w.T + bias,
    "everything": lambda x, w, bias: torch.zeros(64, 96),
    "one row": lambda x, w, bias: linear(x, w, bias) * (torch.arange(64) != 7)[:, None],
    "one element": lambda x, w, bias: linear(x, w, bias) * (torch.arange(64 * 96) != 77).view(64, 96),
    "a factor of 0.99": lambda x, w, bias: linear(x, w, bias) * 0.99,
    "halves": lambda x, w, bias: linear(x, w, bias).bfloat16().float(),
}


@pytest.mark.parametrize("name", DROPPED)
def test_what_tf32_does_not_explain_is_refused(name):
    x, w, bias = (torch.randn(shape, generator=rng(3)) for shape in ((64, 256), (96, 256), (96,)))
    expected, room = room_of(linear, x, w, bias * 0.8)
    assert accepts(expected, linear(rounded(x), rounded(w), bias * 0.8), room)
    assert not accepts(expected, DROPPED[name](x, w, bias * 0.8), room)


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def flash(q, k, v):
    """Unnormalised weights against a running maximum, as fused kernels have them."""
    out, total, most = torch.zeros_like(q), torch.zeros(*q.shape[:-1], 1), torch.full((*q.shape[:-1], 1), -math.inf)
    for start in range(0, k.shape[-2], 16):
        part = slice(start, start + 16)
        s = rounded(q) @ rounded(k[..., part, :]).transpose(-1, -2) / math.sqrt(q.shape[-1])
        new = torch.maximum(most, s.amax(-1, keepdim=True))
        p, old = torch.exp(s - new), torch.exp(most - new)
        out, total, most = out * old + rounded(p) @ rounded(v[..., part, :]), total * old + p.sum(-1, keepdim=True), new
    return out / total


def network(x, w1, w2, gain, cut=torch.Tensor.clone):
    """Its factors are cut before each product."""
    hidden = F.gelu(cut(x) @ cut(w1))
    return F.layer_norm(cut(hidden) @ cut(w2), w2.shape[1:], gain)


def drawn(seed, *shapes):
    return [torch.randn(shape, generator=rng(seed + place)) for place, shape in enumerate(shapes)]


def of_rounded(program):
    """The program whose factors, which are all of its inputs, are rounded before it."""
    return program, lambda *inputs: program(*map(rounded, inputs))


PROGRAMS = {
    "attention": (attention, flash, [(2, 4, 64, 32)] * 3, 1.0),
    "sharp attention": (attention, flash, [(2, 4, 64, 32)] * 3, 3.0),
    "network": (network, partial(network, cut=rounded), [(64, 48), (48, 96), (96, 80), (80,)], 1.0),
    "loss": (*of_rounded(lambda a, b: (a @ b).square().mean()), [(32, 64), (64, 32)], 1.0),
    "row sums": (*of_rounded(lambda a, b: (a @ b).sum(-1, keepdim=True)), [(300, 64), (64, 32)], 1.0),
    "normalised rows": (lambda a, b, c: c / (1 + (a @ b).abs().sum(-1, keepdim=True)),
                        lambda a, b, c: c / (1 + (rounded(a) @ rounded(b)).abs().sum(-1, keepdim=True)),
                        [(500, 64), (64, 1), (500, 64)], 1.0),
    "convolution": (*of_rounded(lambda x, w: F.conv2d(x, w, padding=1)), [(2, 8, 20, 20), (16, 8, 3, 3)], 1.0),
    "strided transposed convolution": (
        *of_rounded(lambda x, w: F.conv_transpose2d(x, w, stride=2)), [(2, 8, 10, 10), (8, 6, 3, 3)], 1.0,
    ),
    "triangles": (*of_rounded(lambda a, b: torch.tril(a) @ torch.tril(b)), [(150, 150)] * 2, 1.0),
    # Eight of 12 on the diagonal, of very different scales.
    "blocks": (*of_rounded(lambda a, b: torch.block_diag(*a) @ torch.block_diag(*b)), [(8, 12, 12)] * 2, 1.0),
    "halves": (*of_rounded(lambda a, b: (a @ b).half()), [(64, 256), (256, 64)], 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_rounded_products_pass_and_other_errors_do_not(name):
    program, fused, shapes, scale = PROGRAMS[name]
    for seed in range(0, 50, 10):
        inputs = [scale * x for x in drawn(seed, *shapes)]
        expected, room = room_of(program, *inputs)
        plain = compare(expected, fused(*inputs), "scaled", LEAST)
        assert name in ("halves", "loss", "row sums", "normalised rows") or not plain.ok
        assert accepts(expected, fused(*inputs), room), (seed, compare(expected, fused(*inputs), "scaled", LEAST, room))
        assert not accepts(expected, expected * 0.97, room)
        assert not accepts(expected, torch.zeros_like(expected), room)


def test_zeros_are_no_result_of_rounding_however_much_cancels():
    """TF32 leaves nothing of x @ w - x @ (w + tiny): then it is no way to compute it."""
    x, w = drawn(0, (64, 64), (64, 64))
    tiny = 1e-5 * torch.randn(64, 64, generator=rng(5))
    expected, room = room_of(lambda a, b: a @ b - a @ (b + tiny), x, w)
    assert not accepts(expected, torch.zeros_like(expected), room)
    assert not accepts(expected, rounded(x) @ rounded(w) - rounded(x) @ rounded(w + tiny), room)


def test_a_large_element_has_room_in_its_row():
    """The scale of its column is that of the other rows."""
    s, c = torch.linspace(0.01, 20, 500)[:, None], torch.randn(500, 64, generator=rng(0))
    a, b = torch.randn(500, 64, generator=rng(1)), torch.randn(64, 1, generator=rng(2))
    a += (s - a @ b) / b.square().sum() * b.T  # so that a @ b is s
    program, _fused, *_ = PROGRAMS["normalised rows"]
    expected, room = room_of(program, a, b, c)
    for seed in range(20):
        with torch.no_grad(), Rounding(100 + seed):
            moved = program(a, b, c)
        assert accepts(expected, moved, room)


def test_a_small_row_beside_large_ones_has_small_room():
    a, b = drawn(0, (64, 64), (64, 64))
    a[5] *= 1e-3
    _, room = room_of(torch.mm, a, b)
    assert room.above[5].max() < 0.01 * room.above[4].max()


def test_parity_is_allclose_and_the_room():
    a, b = drawn(1, (64, 4096), (4096, 64))
    expected, room = room_of(torch.mm, a, b)
    fused = rounded(a) @ rounded(b)
    assert not compare(expected, fused, "parity").ok
    assert accepts(expected, fused, room, "parity")
    beyond = expected + 1e-2 + 1e-2 * expected.abs()
    assert accepts(expected, beyond + 0.9 * room.above, room, "parity")
    assert not accepts(expected, beyond + 1.1 * room.above, room, "parity")


def test_only_what_is_beyond_the_room_is_an_error():
    """Sides differ: rounding towards zero makes what is positive smaller."""
    a, b = operands((32, 64, 48), 2, 0, "uniform")
    expected, room = room_of(torch.mm, a, b)
    assert (room.below > 1.2 * room.above).all()
    for sign, side in ((-1, room.below), (1, room.above)):
        for tolerance in (1.5e-4, 2.5e-4):  # of an element and, about as much, of the scale around it
            error = sign * (side.double() + tolerance * expected.double().abs())
            assert accepts(expected, expected + error, room) == (tolerance < 2e-4)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_rows_and_columns_of_their_own_scales_are_found(rows, columns, seed):
    """A table of products of a row's and a column's number is what smoothing leaves as it is, whatever its pieces."""
    one, other = (10 ** torch.randn(size, generator=rng(seed)) for size in ((rows, 1), (1, columns)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", 640)
        found = smoothed(one * other)
    wide = columns if columns >= 16 else rows * columns
    if rows * columns // wide >= 4 and wide == columns:
        assert torch.allclose(found, one * other, rtol=1e-4)
    flat = found.view(-1)
    assert flat.isfinite().all()
    assert (flat >= 0).all()


def test_what_has_no_rounded_products_has_no_room():
    x = torch.randn(8, 8, generator=rng(0))
    assert rooms([x], lambda seed: None, LEAST) is None
    assert rooms([x], lambda seed: [x[:4]], LEAST) is None  # the form depends on the numbers
    assert rooms([x], lambda seed: [x] if seed is None else None, LEAST) is None  # the program fails


def test_integers_have_none_and_other_outputs_keep_theirs():
    a, b = drawn(0, (64, 64), (64, 64))

    def run(seed):
        with Rounding(seed):
            product = a @ b
        return [product, product.argmax(-1), torch.complex(product, a)]

    expected = [a @ b, (a @ b).argmax(-1), torch.complex(a @ b, a)]
    found = rooms(expected, run, LEAST)
    assert found[1] is None
    assert limits(expected, LEAST)[1] is None
    assert found[2].above[..., 0].max() > 0
    assert found[2].above[..., 1].max() == 0
    fused = torch.complex(rounded(a) @ rounded(b), a)
    assert not compare(expected[2], fused, "scaled", LEAST).ok
    assert compare(expected[2], fused, "scaled", LEAST, found[2]).ok


def test_infinities_stay_where_they_are():
    a, b = drawn(0, (32, 32), (32, 32))
    a[3, 4] = math.inf
    expected, room = room_of(torch.mm, a, b)
    assert accepts(expected, rounded(a) @ rounded(b), room)
    assert not accepts(expected, torch.where(expected.isfinite(), expected, 0.0), room)
    assert not accepts(expected, torch.where(expected > 10, math.inf, expected), room)


def test_there_are_as_many_runs_as_said():
    seeds, x = [], torch.ones(3)
    rooms([x], lambda seed: seeds.append(seed) or [x], LEAST)
    assert seeds == [None, *range(RUNS)]
