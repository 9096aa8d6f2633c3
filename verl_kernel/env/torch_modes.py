# SPDX-License-Identifier: Apache-2.0
"""Modes of torch for the trial in the other mode: gradients are recorded, or modules switched to train or eval mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def switched(model: Any) -> Iterator[None]:
    """Switch a module from train to eval mode, or from eval to train mode; afterwards restore all its submodules."""
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
    """Record a graph for gradients, as torch does by default, but save no tensors in it, so that it takes no memory."""
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda value: None, _not_kept):
        yield


def _not_kept(nothing: Any) -> torch.Tensor:
    raise RuntimeError("a forward that is judged is followed by no backward pass, so nothing was kept for one")
