# SPDX-License-Identifier: Apache-2.0
"""The first hour on a GPU: its steps, what they leave, and the page (`benchmarks/gpu_hour.py`)."""
