# SPDX-License-Identifier: Apache-2.0
"""Launches without data under Triton's interpreter: some programs of a grid, some turns of a loop, values unknown.

Import these modules only in a process that does dry passes: they change the interpreter for good.
"""
