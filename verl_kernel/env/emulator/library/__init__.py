# SPDX-License-Identifier: Apache-2.0
"""LLVM functions that lowered kernels call: checked accesses, atomics, matrix products, approximated functions."""
