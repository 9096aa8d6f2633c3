# SPDX-License-Identifier: Apache-2.0
"""The sections of `benchmarks/bench_gpu.py`, each run in a process of its own."""
