# SPDX-License-Identifier: Apache-2.0
"""Devices: what differs between a GPU and Triton's interpreter."""

INTERPRETER_VARIABLES = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
"""What the environment must hold before a process that interprets kernels imports triton."""
COMPILED_VARIABLES = {"VERL_KERNEL_LAUNCHES": "compiled", "OMP_NUM_THREADS": "1"}
"""What the environment holds of a process whose kernels run compiled, elsewhere."""
