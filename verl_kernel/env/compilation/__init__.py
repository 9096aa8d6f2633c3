# SPDX-License-Identifier: Apache-2.0
"""Compiles a candidate's launches with Triton's own compiler, without a GPU."""
