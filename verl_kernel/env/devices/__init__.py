# SPDX-License-Identifier: Apache-2.0
"""Devices: the operations that differ between a GPU and a CPU."""

CPU_VARIABLES = {"VERL_KERNEL_LAUNCHES": "executed", "OMP_NUM_THREADS": "1"}
"""Environment variables of a CPU process that launches kernels, which another process executes."""
