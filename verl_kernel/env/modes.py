# SPDX-License-Identifier: Apache-2.0
"""Modes of torch in which a program must do what it does in its usual one: gradients recorded, modules switched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def switched(model: Any) -> Iterator[None]:
    """Where a module is in eval mode, or in train mode if it was in eval mode; its modules are as before afterwards."""
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    before = [(module, module.training) for module in modules]
    if before:
        model.train(not model.training)
    try:
        yield
    finally:
        for module, is_training in before:
            module.training = is_training


@contextlib.contextmanager
def recording_gradients() -> Iterator[None]:
    """Where torch records a graph for gradients, as it does by default; it keeps no values, so it costs no memory."""
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda value: None, _not_kept):
        yield


def _not_kept(nothing: Any) -> torch.Tensor:
    raise RuntimeError("a forward that is judged is followed by no backward pass, so nothing was kept for one")
