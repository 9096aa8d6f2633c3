# SPDX-License-Identifier: Apache-2.0
"""Runs kernels that Triton compiled for a GPU, as native code on the host's processor.

PTX is parsed, lowered to LLVM IR that runs one warp at a time as vectors of 32 lanes, and compiled by llvmlite. Each
access to memory is checked against the buffers of the launch, and executed instructions are counted.
"""
