# SPDX-License-Identifier: Apache-2.0
"""What a judge asks of a runner that follows its candidate without data, and the answer (`messages` has all others)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:  # torch, which a compiling process goes without
    from verl_kernel.env.ipc.tensor_facts import Facts


class DrySize(TypedDict):
    """The sizes of one forward without data: what the model is made from, and its inputs.

    A tensor whose offset is -1 has no data.
    """

    seed: int
    init: Any
    init_specs: list[dict[str, Any]]
    inputs: Any
    specs: list[dict[str, Any]]


class DryRequest(TypedDict):
    """The candidate's class, and the sizes at which it is built and called once."""

    entry: str
    seed: int
    """What the places of tensors are drawn from."""
    sizes: list[DrySize]


class Dry(TypedDict):
    """Import the candidate's file and follow it without data; the only request of such a runner."""

    dry: DryRequest


class DryReply(TypedDict):
    """What a forward without data ran; output and tensors are those of `messages.Form`."""

    output: Any
    tensors: list[Facts]
    events: list[dict[str, object]]


class DryReplies(TypedDict):
    """One answer for each size, and why the candidate could not be followed, if so."""

    replies: list[DryReply]
    reasons: list[str]
