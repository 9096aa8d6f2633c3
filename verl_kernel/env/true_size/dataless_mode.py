# SPDX-License-Identifier: Apache-2.0
"""Runs torch's ops without data: shapes from torch's own shape functions, values only where they are small and known.

A view runs as it is. Any other op runs on `meta`, and its results are new tensors without data. What has no unknown
operand and a small result is computed for real: whole numbers and conditions up to `KNOWN_INTEGERS`, since programs
use them as indices and bounds, anything up to `KNOWN_BYTES`. What nobody has written is never known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.ops.mode import OpMode
from verl_kernel.env.ops.table import Trait, is_view, op_of
from verl_kernel.env.true_size.dataless import AddressSpace

KNOWN_INTEGERS, KNOWN_BYTES = 16 << 20, 16 << 10


class DatalessMode(OpMode):
    """Runs every op inside without data.

    Args:
        space: where its tensors lie.
    """

    def __init__(self, space: AddressSpace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._space = space
        self.ops: list[str] = []
        """Names of the ops inside that were no views, in order."""

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op.

        Raises:
            Undecidable: it reads a value that is not known, or its shape depends on one.
        """
        name, traits = func._schema.name, op_of(func).traits
        if is_view(func) or Trait.ALIASES in traits:
            return func(*args, **kwargs)
        self.ops.append(name)
        tensors = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
        is_known = not any(map(self._space.is_unknown, tensors))
        if Trait.ASKS in traits:
            if not is_known:
                raise self._space.refuse(f"{name} reads the value of a tensor on the host")
            return func(*args, **kwargs)
        twins: dict[int, torch.Tensor] = {}
        result = self._on_meta(func, args, kwargs, twins)
        if is_known and _is_small(result) and Trait.ALLOCATES not in traits:
            return func(*args, **kwargs)
        originals = {id(twins[id(tensor)]): tensor for tensor in tensors if id(tensor) in twins}
        self._note_writes(func, args, kwargs)
        return pytree.tree_map(lambda leaf: self._made(leaf, originals), result)

    def _on_meta(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], twins: dict[int, torch.Tensor]
    ) -> Any:
        def twin(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if id(leaf) not in twins:
                twins[id(leaf)] = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
            return twins[id(leaf)]

        named = {key: value for key, value in kwargs.items() if key not in ("pin_memory", "generator")}
        if any(item.name == "device" for item in func._schema.arguments):
            named["device"] = torch.device("meta")
        try:
            return func(*pytree.tree_map(twin, args), **pytree.tree_map(twin, named))
        except NotImplementedError:
            text = f"the shape of what {func._schema.name} returns depends on values, or torch does not know it"
            raise self._space.refuse(text) from None

    def _note_writes(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Real tensors that an op writes to are unknown from here on."""
        for number, item in enumerate(func._schema.arguments):
            if item.alias_info is None or not item.alias_info.is_write:
                continue
            written = args[number] if number < len(args) else kwargs.get(item.name)
            for leaf in pytree.tree_leaves(written):
                if isinstance(leaf, torch.Tensor):
                    self._space.taint(leaf)

    def _made(self, leaf: Any, originals: Mapping[int, torch.Tensor]) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        known = originals.get(id(leaf))
        return self._space.tensor(leaf.shape, leaf.stride(), leaf.dtype) if known is None else known


def _is_small(result: Any) -> bool:
    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    is_whole = not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)
    return nbytes <= (KNOWN_INTEGERS if is_whole and tensors else KNOWN_BYTES)
