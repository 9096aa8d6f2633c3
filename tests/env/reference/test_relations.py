# SPDX-License-Identifier: Apache-2.0
"""What holds of inputs that people use, in every draw, holds in every trial; what only a few draws show does not."""

from collections.abc import Callable
from itertools import count
from math import inf

import pytest
import torch

from verl_kernel.env import KINDS
from verl_kernel.env.reference.relations import find_relations, packed, unpacked
from verl_kernel.env.reference.variation import Tensors, Variation, learn

Draw = Callable[[torch.Generator], Tensors]
ROWS, WIDTH, EXPERTS = 24, 12, 6
LEFT_ALONE = {"positions", "sparse rows", "a step and its table", "a matrix of a permutation"}
LEFT_ALONE |= {"pages that rows share, and padding", "rows of ids that end with zeros"}


def randint(g: torch.Generator, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=g)


def randn(g: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=g)


def permutation(g: torch.Generator, size: int) -> torch.Tensor:
    return torch.randperm(size, generator=g)


def bits(g: torch.Generator, *shape: int, share: float = 0.5) -> torch.Tensor:
    return torch.rand(shape, generator=g) < share


def hidden(g: torch.Generator, *shape: int, value: float = -inf) -> torch.Tensor:
    return torch.where(bits(g, *shape), value, 0.0)


def has_values(tensor: torch.Tensor, *values: float) -> bool:
    return bool(((tensor == values[0]) | (tensor == values[1])).all())


def rotary(g: torch.Generator) -> Tensors:
    angles = randint(g, 0, 4096, ROWS, 1) / 10_000 ** (torch.arange(8) / 8)
    return [randn(g, ROWS, 16), angles.repeat(1, 2).cos(), angles.repeat(1, 2).sin()]


def interleaved(g: torch.Generator) -> Tensors:
    angles = randint(g, 0, 4096, ROWS, 1) / 10_000 ** (torch.arange(8) / 8)
    return [angles.repeat_interleave(2, -1).cos()]


def counts(g: torch.Generator) -> torch.Tensor:
    return randint(g, 0, EXPERTS, 60).bincount(minlength=EXPERTS)


def lengths(g: torch.Generator) -> torch.Tensor:
    """Lengths of eight sequences of 64 tokens in all."""
    cuts = permutation(g, 63)[:7].sort().values + 1
    return torch.cat([cuts, torch.tensor([64])]).diff(prepend=torch.tensor([0]))


def starts(sizes: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))


def offsets(g: torch.Generator) -> torch.Tensor:
    return starts(lengths(g))


def sparse(g: torch.Generator) -> Tensors:
    sizes = randint(g, 0, 6, ROWS)
    columns = torch.cat([permutation(g, 50)[: int(size)].sort().values for size in sizes])
    return [starts(sizes), columns, randn(g, columns.numel())]


def padding(g: torch.Generator) -> torch.Tensor:
    return torch.arange(WIDTH) < randint(g, 1, WIDTH + 1, ROWS, 1)


def first_visible(g: torch.Generator) -> torch.Tensor:
    hidden = bits(g, ROWS, WIDTH, share=0.3)
    hidden[:, 0] = False
    return hidden


def quantised(g: torch.Generator) -> Tensors:
    x = randn(g, ROWS, WIDTH)
    return [x, x.abs().amax(-1) / 127]


def ordered(x: torch.Tensor) -> bool:
    return bool((x.diff(dim=-1) >= 0).all())


def distinct(x: torch.Tensor) -> bool:
    return all(len(row.unique()) == len(row) for row in x.reshape(-1, x.shape[-1]))


def is_one_hot(x: Tensors) -> bool:
    return has_values(x[0], 0, 1) and bool((x[0].sum(-1) == 1).all())


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one.float(), other.float(), rtol=2e-3, atol=1e-6)


def is_csr(x: Tensors) -> bool:
    rows = [x[1][start:end] for start, end in zip(x[0][:-1], x[0][1:], strict=True)]
    return int(x[0][-1]) == len(x[1]) and ordered(x[0]) and all(bool((row.diff() > 0).all()) for row in rows)


# How the inputs are drawn, and what holds of all of them.
INPUTS: dict[str, tuple[Draw, Callable[[Tensors], bool]]] = {
    "rotary tables": (rotary, lambda x: all(torch.equal(t[:, :8], t[:, 8:]) for t in x[1:])),
    "interleaved rotary table": (interleaved, lambda x: torch.equal(x[0][:, ::2], x[0][:, 1::2])),
    "offsets of sequences": (lambda g: [offsets(g)],
                             lambda x: ordered(x[0]) and x[0][0] == 0 and x[0][-1] == 64 and x[0].diff().min() > 0),
    "offsets and lengths": (lambda g: [offsets(g), (sizes := lengths(g)), starts(sizes)][1:],
                            lambda x: torch.equal(starts(x[0]), x[1])),
    "offsets of 32 bits and lengths": (lambda g: [(sizes := lengths(g)), starts(sizes).int()],
                                       lambda x: torch.equal(starts(x[0]).int(), x[1])),
    "starts and lengths that never change": (
        lambda g: [randn(g, 256, 2), (sizes := torch.tensor([40, 128, 17, 71])), starts(sizes)[:-1]],
        lambda x: x[1].sum() == 256 and torch.equal(starts(x[1])[:-1], x[2]),
    ),
    "counts of experts": (lambda g: [counts(g)], lambda x: x[0].sum() == 60 and x[0].min() >= 0),
    "ends of experts": (lambda g: [randn(g, 60, 4), counts(g).cumsum(0)],
                        lambda x: ordered(x[1]) and x[1][-1] == 60 and x[1][0] >= 0),
    "ids and counts": (lambda g: [(ids := randint(g, 0, 3, 60)), ids.bincount(minlength=3)],
                       lambda x: torch.equal(x[0].bincount(minlength=3), x[1])),
    "ids and their order": (lambda g: [(ids := randint(g, 0, 3, 60)), ids.argsort(stable=True)],
                            lambda x: torch.equal(x[0].argsort(stable=True), x[1])),
    "sorted ids": (lambda g: [randint(g, 0, EXPERTS, 60).sort().values], lambda x: ordered(x[0]) and x[0].max() < 6),
    "experts of tokens": (lambda g: [torch.rand(ROWS, 8, generator=g).topk(2).indices],
                          lambda x: distinct(x[0]) and x[0].max() < 8),
    "rows of permutations": (lambda g: [torch.stack([permutation(g, 9) for _ in range(5)])],
                             lambda x: all(torch.equal(row.sort().values, torch.arange(9)) for row in x[0])),
    "a permutation": (lambda g: [permutation(g, 40)], lambda x: torch.equal(x[0].sort().values, torch.arange(40))),
    "a permutation and its inverse": (lambda g: [(p := permutation(g, 40)), p.argsort()],
                                      lambda x: torch.equal(x[0].argsort(), x[1])),
    "a table of pages": (lambda g: [permutation(g, 64)[:48].view(6, 8), randint(g, 1, 129, 6)],
                         lambda x: distinct(x[0]) and x[0].max() < 64 and x[1].min() >= 1 and x[1].max() < 129),
    "slots, some of them padding": (lambda g: [permutation(g, 64)[:32].where(bits(g, 32), -1)],
                                    lambda x: distinct(x[0][x[0] >= 0]) and x[0].max() < 64),
    "rows of slots, some of them padding": (
        lambda g: [permutation(g, 256)[:96].view(4, 24).where(torch.arange(24) < randint(g, 9, 25, 4, 1), -1)],
        lambda x: distinct(x[0][x[0] >= 0]) and x[0].max() < 256 and ordered(-(x[0] >= 0).long()),
    ),
    "a few slots, some of them padding": (lambda g: [permutation(g, 40)[:12].where(bits(g, 12, share=0.8), -1)],
                                          lambda x: distinct(x[0][x[0] >= 0]) and x[0].max() < 40),
    "rows that begin with one number and end with padding": (
        lambda g: [torch.where(torch.arange(16) < randint(g, 4, 17, 12, 1),
                               torch.cat([torch.full((12, 1), 7), randint(g, 1, 300, 12, 15)], 1), 0)],
        lambda x: bool((x[0][:, 0] == 7).all()),
    ),
    "rows of ids that end with zeros": (
        lambda g: [randint(g, 1, 300, 12, 16).where(torch.arange(16) < (n := randint(g, 1, 17, 12, 1)), 0), n],
        lambda x: bool(((x[0] > 0) == (torch.arange(16) < x[1])).all()),
    ),
    "a column of slots": (lambda g: [permutation(g, 64)[:32, None]], lambda x: distinct(x[0][:, 0])),
    "pages that rows share, and padding": (
        lambda g: [randint(g, 0, 40, 6, 8).where(torch.arange(8) < (n := randint(g, 1, 9, 6, 1)), -1), n],
        lambda x: bool(((x[0] >= 0) == (torch.arange(8) < x[1])).all()),
    ),
    "ids padded by their number": (lambda g: [permutation(g, 48).where(bits(g, 48), 48)],
                                   lambda x: distinct(x[0][x[0] < 48]) and x[0].min() >= 0),
    "sparse rows": (sparse, is_csr),
    "token ids": (lambda g: [randint(g, 0, 500, 4, 32)], lambda x: x[0].min() >= 0 and x[0].max() < 500),
    "a seed": (lambda g: [randint(g, 0, 1000, 1)], lambda x: x[0].min() >= 0 and x[0].max() < 1000),
    "a step and its table": (lambda g: [randint(g, 1, 100, 1), torch.arange(1, 33)],
                             lambda x: torch.equal(x[1], torch.arange(1, 33))),
    "positions": (lambda g: [torch.arange(32) + randint(g, 0, 100, 1)], lambda x: bool((x[0].diff() == 1).all())),
    "ends that never change": (lambda g: [randn(g, 8), torch.tensor([20, 20, 45, 45, 60])],
                               lambda x: ordered(x[1]) and x[1][0] == 20 and x[1][-1] == 60),
    "a mask with visible first keys": (lambda g: [first_visible(g)], lambda x: not x[0][:, 0].any()),
    "a mask of padding": (lambda g: [padding(g)],
                          lambda x: bool((x[0][:, :-1] >= x[0][:, 1:]).all()) and bool(x[0][:, 0].all())),
    "a mask of padding on the left": (lambda g: [padding(g).flip(-1).long()], lambda x: ordered(x[0])),
    "a causal mask with holes": (lambda g: [bits(g, WIDTH, WIDTH).tril(-1) | torch.eye(WIDTH, dtype=torch.bool)],
                                 lambda x: not x[0].triu(1).any() and bool(x[0].diagonal().all())),
    "a symmetric mask": (lambda g: [(m := bits(g, WIDTH, WIDTH)) | m.mT], lambda x: torch.equal(x[0], x[0].mT)),
    "a mask and its opposite": (lambda g: [(m := bits(g, ROWS, WIDTH)), ~m], lambda x: torch.equal(x[0], ~x[1])),
    "a mask and its copy in float": (lambda g: [(m := bits(g, ROWS, WIDTH)), m.float()],
                                     lambda x: torch.equal(x[0].float(), x[1])),
    "two places of each row": (
        lambda g: [torch.zeros(ROWS, 8).scatter(1, torch.rand(ROWS, 8, generator=g).topk(2).indices, 1).long()],
        lambda x: bool((x[0].sum(-1) == 2).all()),
    ),
    "short rows that are never empty": (lambda g: [(m := bits(g, 200, 3)) | (m.sum(-1, keepdim=True) == 0)],
                                        lambda x: bool(x[0].any(-1).all())),
    "one-hot rows": (lambda g: [torch.eye(WIDTH)[randint(g, 0, WIDTH, ROWS)]], is_one_hot),
    "a matrix of a permutation": (lambda g: [torch.eye(WIDTH)[permutation(g, WIDTH)]], is_one_hot),
    "a sorted vector": (lambda g: [randn(g, 50).sort().values], lambda x: ordered(x[0])),
    "halves of probabilities": (
        lambda g: [randn(g, ROWS, WIDTH).softmax(-1).half()],
        lambda x: torch.allclose(x[0].float().sum(-1), torch.ones(()), atol=1e-2) and x[0].min() >= 0,
    ),
    "one-hot integers": (lambda g: [torch.eye(WIDTH)[randint(g, 0, WIDTH, ROWS)].long()], is_one_hot),
    "an identity": (lambda g: [torch.eye(WIDTH)], is_one_hot),
    "probabilities": (lambda g: [randn(g, ROWS, WIDTH).softmax(-1)],
                      lambda x: near(x[0].sum(-1), torch.ones(ROWS)) and x[0].min() >= 0),
    "log-probabilities": (lambda g: [randn(g, ROWS, WIDTH).log_softmax(-1)],
                          lambda x: near(x[0].exp().sum(-1), torch.ones(ROWS))),
    "rows of length one": (lambda g: [torch.nn.functional.normalize(randn(g, ROWS, WIDTH), dim=-1)],
                           lambda x: near(x[0].norm(dim=-1), torch.ones(ROWS))),
    "rows and their norms": (lambda g: [(x := randn(g, ROWS, WIDTH)), x.norm(dim=-1, keepdim=True)],
                             lambda x: near(x[0].norm(dim=-1, keepdim=True), x[1])),
    "rows and their scales": (quantised, lambda x: near(x[0].abs().amax(-1) / 127, x[1])),
    "a tensor and its scale": (lambda g: [(x := randn(g, ROWS, WIDTH)), x.abs().amax().reshape(1) / 448],
                               lambda x: near(x[0].abs().amax() / 448, x[1][0])),
    "a scale and its reciprocal": (lambda g: [(s := torch.rand(ROWS, generator=g) + 0.1), 1 / s],
                                   lambda x: near(x[0] * x[1], torch.ones(ROWS))),
    "logits and their logsumexp": (lambda g: [(x := randn(g, ROWS, WIDTH)), x.logsumexp(-1)],
                                   lambda x: near(x[0].logsumexp(-1), x[1])),
    "keys that are the queries": (lambda g: [(x := randn(g, ROWS, WIDTH)), x.clone()], lambda x: torch.equal(*x)),
    "a matrix and its transpose": (lambda g: [(x := randn(g, ROWS, WIDTH)), x.mT.contiguous()],
                                   lambda x: torch.equal(x[0].mT, x[1])),
    "repeated rows": (lambda g: [randn(g, 4, 1, 6).expand(4, 3, 6).reshape(12, 6)],
                      lambda x: torch.equal(x[0][::3], x[0][1::3])),
    "a symmetric matrix": (lambda g: [(x := randn(g, 9, 9)) + x.mT], lambda x: torch.equal(x[0], x[0].mT)),
    "a triangular matrix": (lambda g: [randn(g, 9, 9).tril(-1) + torch.eye(9)],
                            lambda x: not x[0].triu(1).any() and bool((x[0].diagonal() == 1).all())),
    "a band": (lambda g: [randn(g, 16, 16).tril(2).triu(-2)], lambda x: not (x[0].tril(-3) + x[0].triu(3)).any()),
    "rows in ascending order": (lambda g: [randn(g, ROWS, WIDTH).sort(-1).values], lambda x: ordered(x[0])),
    "packed integers": (lambda g: [randint(g, -(2**31), 2**31, 64).int()],
                        lambda x: x[0].dtype == torch.int32 and x[0].numel() == 64),
    "halves of a table": (lambda g: [randn(g, ROWS, 4).half().repeat(1, 2)],
                          lambda x: torch.equal(x[0][:, :4], x[0][:, 4:])),
    "an additive mask": (lambda g: [randn(g, 8, 8), hidden(g, 16, 8)], lambda x: has_values(x[1], 0, -inf)),
    "an additive mask of -1e9": (lambda g: [hidden(g, 16, 8, value=-1e9)], lambda x: has_values(x[0], 0, -1e9)),
    "a visible key": (lambda g: [randn(g, 8, 8), hidden(g, 64, 4).index_fill_(1, torch.tensor([0]), 0)],
                      lambda x: not x[1][:, 0].any()),
    "a mask and what is added for it": (lambda g: (lambda m: [m, torch.where(m, 0.0, -inf)])(bits(g, 12, 12)),
                                        lambda x: torch.equal(x[1] == 0, x[0]) and has_values(x[1], 0, -inf)),
    "what is added, and bytes that say where": (
        lambda g: (lambda m: [torch.where(m, -1e4, 0.0).half(), m.int()])(bits(g, 12, 12)),
        lambda x: torch.equal(x[0] != 0, x[1] != 0) and has_values(x[0], 0, -1e4),
    ),
    "signs": (lambda g: [randn(g, 32), bits(g, 32).float() * 2 - 1], lambda x: has_values(x[1], 1, -1)),
    "a mask of dropout": (lambda g: [randn(g, 32), bits(g, 32) * 1.25], lambda x: has_values(x[1], 0, 1.25)),
    "an additive mask that never changes": (lambda g: [randn(g, 8, 8), torch.full((8, 8), -inf).triu(1)],
                                            lambda x: has_values(x[1], 0, -inf)),
    "a table that never changes": (lambda g: [randn(g, 4), torch.linspace(0, 1, 8).repeat(2)],
                                   lambda x: torch.equal(x[1][:8], x[1][8:])),
}  # fmt: skip
TRIANGLE = torch.ones(8, 8).triu(1) != 0


def learned(draw: Draw, bears: Callable[[Tensors], bool] = lambda tensors: True) -> Variation:
    """What three draws show, and as many more as are asked for."""
    seeds = count(3)

    def more() -> Tensors | None:
        seed = next(seeds)
        return draw(torch.Generator().manual_seed(seed)) if seed < 48 else None

    return learn([draw(torch.Generator().manual_seed(seed)) for seed in range(3)], bears, draw_more=more)


@pytest.mark.parametrize("name", INPUTS)
def test_what_every_draw_has_every_trial_has(name):
    draw, has = INPUTS[name]
    variation = learned(draw)
    for seed in range(100, 110):
        drawn = draw(torch.Generator().manual_seed(seed))
        assert has(drawn)
        for kind in KINDS[1:]:
            for changed, _ in variation.choices(drawn, seed, kind):
                assert has(changed), (kind, changed)
                assert [(one.shape, one.dtype) for one in changed] == [(one.shape, one.dtype) for one in drawn]


@pytest.mark.parametrize("name", sorted(INPUTS.keys() - LEFT_ALONE))
def test_all_of_it_changes(name):
    """Else it would be kept by leaving inputs alone."""
    draw, _ = INPUTS[name]
    variation, drawn = learned(draw), draw(torch.Generator().manual_seed(100))
    trials = [variation.apply(drawn, seed, kind) for seed in range(8) for kind in KINDS[1:]]
    for number, tensor in enumerate(drawn):
        assert any(not torch.equal(trial[number], tensor) for trial in trials)


# The other side: draws show by accident what no task promises.

ACCIDENTS: dict[str, tuple[Draw, Callable[[Tensors], bool]]] = {
    "bits equal each other in a few draws": (lambda g: [bits(g, 64, 64)], lambda x: bool((x[0][0] == x[0][1]).all())),
    "rare bits are never set in a few draws": (lambda g: [bits(g, 400, share=0.01)], lambda x: not x[0][:200].any()),
    "digits equal each other": (lambda g: [randint(g, 0, 4, 400)], lambda x: x[0].unique().numel() == 4),
    "numbers are positive": (lambda g: [torch.rand(400, generator=g)], lambda x: bool((x[0] >= 0).all())),
    "numbers below one": (lambda g: [torch.rand(400, generator=g)], lambda x: bool((x[0].abs() < 1).all())),
    "ids reach no end": (lambda g: [randint(g, 0, 5000, 60)], lambda x: x[0].unique().numel() > 55),
    "a mask that is all true": (lambda g: [randn(g, 4), torch.ones(40, dtype=torch.bool)], lambda x: bool(x[1].all())),
    "long rows are never empty": (lambda g: [bits(g, 20, 30)], lambda x: bool(x[0].any(-1).all())),
    "zeros of a relu": (lambda g: [randn(g, 400).relu()], lambda x: x[0].count_nonzero() < 400 and x[0].min() >= 0),
    "six numbers of two kinds": (lambda g: [randint(g, 0, 2, 6) * 2.0 + 1], lambda x: has_values(x[0], 1, 3)),
    "a causal mask": (lambda g: [randn(g, 8, 8), torch.full((8, 8), -inf).triu(1)],
                      lambda x: bool((x[1] != 0).equal(TRIANGLE))),
    "an additive mask that hides a share": (lambda g: [hidden(g, 16, 8)],
                                            lambda x: bool(0.2 < (x[0] != 0).double().mean() < 0.8)),
    "rounded numbers": (lambda g: [randn(g, 300).round()], lambda x: x[0].abs().max() < 6),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCIDENTS)
def test_what_few_draws_show_by_accident_some_trial_breaks(name):
    draw, has = ACCIDENTS[name]
    variation, drawn = learned(draw), draw(torch.Generator().manual_seed(100))
    assert not all(has(variation.apply(drawn, seed, kind)) for seed in range(8) for kind in KINDS[1:])


@pytest.mark.parametrize("name", ["bits equal each other in a few draws", "digits equal each other", "zeros of a relu"])
def test_without_more_draws_an_accident_is_no_relation(name):
    draw, _ = ACCIDENTS[name]
    assert find_relations([draw(torch.Generator().manual_seed(seed)) for seed in range(3)]).cells == ""


def test_an_index_survives_packing():
    index = torch.cat([torch.arange(1000).repeat(3), torch.tensor([-1, -1, 5])])
    assert torch.equal(unpacked(packed(index)), index)
