# SPDX-License-Identifier: Apache-2.0
"""Lowers PTX to LLVM IR: one function that runs a warp; a register is a vector of 32 lanes."""
