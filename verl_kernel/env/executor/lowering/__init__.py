# SPDX-License-Identifier: Apache-2.0
"""From PTX to LLVM IR: one function that runs a warp, a register being a vector of 32 lanes."""
