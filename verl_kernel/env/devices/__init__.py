# SPDX-License-Identifier: Apache-2.0
"""Devices: what differs between a GPU and a CPU."""

CPU_VARIABLES = {"VERL_KERNEL_LAUNCHES": "executed", "OMP_NUM_THREADS": "1"}
"""What the environment holds of a process on a CPU that launches kernels; another process executes them."""
