# SPDX-License-Identifier: Apache-2.0
"""Rollouts against the gym: the multi-turn agent loop `kernel_agent` and the single-turn reward manager `kernelgym`."""
