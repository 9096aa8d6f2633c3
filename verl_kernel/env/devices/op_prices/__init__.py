# SPDX-License-Identifier: Apache-2.0
"""Torch ops as a GPU runs them: the device kernels of each op, with their passes over memory and their work."""
