# SPDX-License-Identifier: Apache-2.0
"""The parts of bench_kernelbench, and in `runs` our answers to tasks of KernelBench."""
