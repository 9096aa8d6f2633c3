# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning of Triton kernels as a plugin for verl (Dr. Kernel, arXiv 2602.05885)."""

__version__ = "0.2.0"
