# SPDX-License-Identifier: Apache-2.0
"""Finds parameters whose start has a structure that training would not keep, and takes it from them.

An adapter that starts as the identity, or a layer that starts as a copy, can be left out without a difference in any
output. Constant parameters are found by their value (`weights`); these by what several seeds have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from verl_kernel.env.reference.relations import find_relations, is_one_number, unpacked

SEEDS = 3
"""Models that are built, each from another seed."""
MOST_ELEMENTS = 1 << 21
"""Models with more parameters are not searched: they would be built and sorted for seconds."""
_FEWEST, _ORTHOGONAL = 4, 1e-3
"""Fewest rows, and largest product of two of them as a part of their square, that are orthogonal by no accident."""
_NOISE = 0.5
"""Size of the noise, as a part of a parameter's root mean square."""


def find_structured(starts: Sequence[Mapping[str, torch.Tensor]]) -> tuple[str, ...]:
    """Return the names of parameters with elements that are equal to others, or the same, whatever the seed.

    Args:
        starts: the floating parameters of the model by name, from several seeds.
    """
    names = [name for name, tensor in starts[0].items() if not is_one_number(tensor)]
    if not names or any(start.keys() != starts[0].keys() for start in starts):
        return ()
    # The seeds are the draws: what is equal in all of them is part of the construction.
    relations = find_relations([[start[name].detach() for name in names] for start in starts])
    groups = [[start[name] for start in starts] for name in names]
    related = {
        number
        for number, group in enumerate(groups)
        if all(torch.equal(group[0], start_value) for start_value in group[1:])
    }
    related |= {number for each in relations.maps for number in (each.target, each.source)}
    related |= {number for number, group in enumerate(groups) if all(map(_is_orthogonal, group))}
    if relations.cells:
        # Both tensors of an equality count: a layer and its copy, each of which gets noise of its own.
        index = unpacked(relations.cells)
        ends = torch.tensor([starts[0][name].numel() for name in names]).cumsum(0)
        related_cells = (index != torch.arange(len(index))).nonzero().reshape(-1)
        related |= set(torch.bucketize(related_cells, ends, right=True).tolist())
        related |= set(
            torch.bucketize(index[related_cells].clamp(min=0)[index[related_cells] >= 0], ends, right=True).tolist()
        )
    return tuple(names[number] for number in sorted(related))


def _is_orthogonal(tensor: torch.Tensor) -> bool:
    """Whether the rows of a matrix, or its columns, are orthogonal to each other and of one length."""
    matrix = tensor.detach().double().flatten(1) if tensor.dim() > 1 else tensor.new_zeros(0, 0).double()
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.t()
    if matrix.shape[0] < _FEWEST:
        return False
    # Orthogonal rows of one length: their products are a multiple of the identity.
    products = matrix @ matrix.t()
    size = float(products.diagonal().mean())
    ideal = size * torch.eye(len(products), dtype=products.dtype)
    return size > 0 and bool((products - ideal).abs().max() <= _ORTHOGONAL * size)


def disturbed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a parameter with noise, as training would have moved it."""
    size = _NOISE * float(tensor.double().square().mean().sqrt())
    noise = torch.randn(tensor.shape, generator=generator) * size
    return torch.empty_like(tensor).copy_(tensor + noise.to(tensor))


def keep_padding(model: object, before: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    """Put back the rows of embeddings that stand for padding, which training leaves as they are.

    Args:
        model: the model; only a module has embeddings.
        before: its weights.
        values: those that were changed, in place.
    """
    for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
        name = f"{path}.weight".lstrip(".")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None and name in values:
            values[name][module.padding_idx] = before[name][module.padding_idx]
