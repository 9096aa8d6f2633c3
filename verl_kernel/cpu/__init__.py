# SPDX-License-Identifier: Apache-2.0
"""verl's platform `cpu`: its trainer, FSDP2 on gloo and a vLLM server without a GPU.

Active only if the environment sets `VERL_PLATFORM=cpu`. It is never detected automatically: otherwise the
CPU-only head node of a GPU cluster would use it.
"""

from __future__ import annotations

import os

PLATFORM = "cpu"
WEIGHT_TRANSFER = "kernel_gloo"
"""Name of the weight-transfer engine in `checkpoint_engine`, and the module that registers it with verl."""

ENVIRONMENT = {
    # verl's FSDP engines are registered for "cuda" and "npu"; the CUDA ones run on a CPU unchanged.
    "VERL_ENGINE_DEVICE": "cuda",
    # GiB. vLLM's own default claims half of the machine.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Binding to fixed cores makes the server starve while trainer and judges run.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # vLLM refuses an executor in the engine's own process ("uni") where this is on. Its engine has a separate process
    # all the same, and an additional worker would only spin on their shared queue: 18 against 5 CPU seconds a step.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Compiling vLLM's sampler takes longer than it ever saves.
    "TORCHDYNAMO_DISABLE": "1",
    # Several processes share few cores: more threads each would only add waiting.
    "OMP_NUM_THREADS": "1",
}
"""Environment variables of every process of a run; variables that the caller has set stay unchanged."""


def is_active() -> bool:
    """Whether this process runs on the CPU platform."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == PLATFORM


def install() -> None:
    """Register the platform with verl and apply the patches it needs; safe to call twice."""
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    from verl_kernel.cpu import patches, platform

    platform.register(PLATFORM)
    patches.apply()
