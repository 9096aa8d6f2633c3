# SPDX-License-Identifier: Apache-2.0
"""Comparison of two outputs: scales, tolerances, and the errors that TF32 may cause."""
