# SPDX-License-Identifier: Apache-2.0
"""Kernels for numba, whose PTX NVIDIA's compiler library makes (`make test-numba`)."""
