# SPDX-License-Identifier: Apache-2.0
"""New values for constant weights, and their transfer to a candidate.

Some parameters and buffers start as one constant (biases 0, norm weights 1, running statistics), so that a program
without them gives the same output. Before the first forward they get other values in the reference and in the
candidate. Weights that start random keep their values: a candidate may have used them in its constructor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from verl_kernel.env.eight_bits import widened

Constants = dict[str, tuple[float, bool]]
"""By name: the value that all elements of a tensor start with, and whether it is a parameter (else a buffer)."""
_DIGITS = "{:.3g}"
"""A value that this format reproduces counts as written by hand."""
_MODEST = (1e-2, 1e2)
"""Range of absolute constants whose size is kept; beyond it the new values are of size one."""


def state_of(model: Any) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a model by name, without copying them."""
    state = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}


def find_constants(model: Any) -> Constants:
    """Return the floating tensors of a model whose elements are all equal.

    A tensor of one element only counts if it is a parameter with a value of few digits, as a person writes it.
    """
    if not isinstance(model, torch.nn.Module):
        return {}
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    constants = {}
    for name, tensor in state_of(model).items():
        value = constant_value(tensor)
        if value is None or (tensor.numel() == 1 and not (name in parameters and _is_short(value, tensor.dtype))):
            continue
        constants[name] = (value, name in parameters)
    return constants


def constant_value(tensor: torch.Tensor) -> float | None:
    """Return the finite value that all elements of a floating tensor have, or None."""
    if not tensor.is_floating_point() or not tensor.numel() or tensor.device.type == "meta":
        return None
    tensor = widened(tensor)
    first = tensor.reshape(-1)[0]
    return first.item() if bool(torch.isfinite(first)) and bool((tensor == first).all()) else None


def renewed(tensor: torch.Tensor, value: float, generator: torch.Generator) -> torch.Tensor:
    """Return random values that replace a constant: 0.5 to 1.5 times the constant, or 0.5 to 1.5 if it is extreme.

    Args:
        tensor: gives shape, dtype and device.
        value: the constant; the values keep its sign (a variance must stay positive), and get random signs if it is 0.
        generator: a generator on the CPU.
    """
    size = 0.5 + torch.rand(tensor.shape, generator=generator)
    if value == 0:
        size *= torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    elif _MODEST[0] <= abs(value) <= _MODEST[1]:
        size *= value
    elif value < 0:
        size *= -1
    return torch.empty_like(tensor).copy_(size)


def copy_state(model: Any, state: Mapping[str, torch.Tensor]) -> bool:
    """Copy the reference's state to `model` if all names, shapes and dtypes agree; return whether they do."""
    own = state_of(model)
    same = own.keys() == state.keys() and all(_alike(own[name], value) for name, value in state.items())
    if same:
        _write({name: own[name] for name in state}, state)
    return same


def hand_over(
    model: Any, state: Mapping[str, torch.Tensor], constants: Constants, structured: Sequence[str] = ()
) -> str:
    """Give a candidate the changed weights, before its first forward.

    Args:
        model: the candidate's model.
        state: the reference's parameters and buffers, already changed.
        constants: the tensors that were changed, with their initial values.
        structured: names of others that were changed, which only their names identify.

    Returns:
        `copied`: all tensors were copied by name. `matched`: the changed tensors were matched by order, by name or by
        their initial value; a parameter without a match counts as left out by the candidate. `seeded`: the candidate's
        tensors could not be identified; they keep their initial values, and the reference must use those too.
    """
    if copy_state(model, state):
        return "copied"
    if not constants or structured:
        return "seeded"
    own = state_of(model)
    pairs = _by_order(own, state, constants) or _by_name_or_value(own, state, constants)
    missing = constants.keys() - pairs.keys()
    if missing and (any(not constants[name][1] for name in missing) or _spare(own, state, pairs)):
        return "seeded"
    _write(pairs, state)
    return "matched"


def _by_order(
    own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor], constants: Constants
) -> dict[str, torch.Tensor]:
    """Return the candidate's tensors for changed ones if all shapes, dtypes and constants agree in order, else {}."""
    if len(own) != len(state) or not all(map(_alike, own.values(), state.values())):
        return {}
    pairs = {name: tensor for name, tensor in zip(state, own.values(), strict=True) if name in constants}
    same = all(constant_value(tensor) == constants[name][0] for name, tensor in pairs.items())
    return pairs if same else {}


def _by_name_or_value(
    own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor], constants: Constants
) -> dict[str, torch.Tensor]:
    """Return the candidate's tensors for changed ones, by name, or as the only ones that start with the constant."""
    pairs = {name: own[name] for name in constants if name in own and _alike(own[name], state[name])}
    lost = [(kind, name) for kind, name in _kinds(state, constants) if name not in pairs]
    free = [(_kind(tensor, constant_value(tensor)), tensor) for name, tensor in own.items() if name not in pairs]
    for kind, name in lost:
        candidates = [tensor for free_kind, tensor in free if free_kind == kind]
        if len(candidates) == sum(free_kind == kind for free_kind, _ in lost) == 1:
            pairs[name] = candidates[0]
    return pairs


def _kinds(state: Mapping[str, torch.Tensor], constants: Constants) -> list[tuple[tuple[Any, ...], str]]:
    return [(_kind(state[name], value), name) for name, (value, _) in constants.items()]


def _kind(tensor: torch.Tensor, value: float | None) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, value


def _spare(
    own: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor], pairs: Mapping[str, torch.Tensor]
) -> bool:
    """Tell whether the candidate has floating tensors unlike all of the reference's: they may hold missing weights."""
    paired = [id(tensor) for tensor in pairs.values()]
    starts = {_start(value) for name, value in state.items() if name not in pairs}
    spare = [tensor for tensor in own.values() if tensor.is_floating_point() and id(tensor) not in paired]
    return any(_start(tensor) not in starts for tensor in spare)


def _start(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, *tensor.reshape(-1)[:8].tolist()


def _write(pairs: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in pairs.items():
            tensor.copy_(state[name])


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype


def _is_short(value: float, dtype: torch.dtype) -> bool:
    """Tell whether a value has at most three digits, like 0, 1, 0.25 or 1e-6, and was therefore not drawn."""
    return torch.tensor(float(_DIGITS.format(value)), dtype=dtype).item() == value
