# SPDX-License-Identifier: Apache-2.0
"""The taskset `kernelgym` of verifiers."""

from verl_kernel.adapters.verifiers import KernelTaskset

__all__ = ["KernelTaskset"]
