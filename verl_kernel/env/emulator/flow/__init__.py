# SPDX-License-Identifier: Apache-2.0
"""Static analysis of a kernel: its basic blocks, uniform registers, live registers and the origins of stored values."""
