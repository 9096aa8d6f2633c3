# SPDX-License-Identifier: Apache-2.0
"""Runs a candidate's compiled kernels, in a process that does not run its host code."""
