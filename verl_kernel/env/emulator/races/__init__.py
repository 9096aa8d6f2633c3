# SPDX-License-Identifier: Apache-2.0
"""Finds races between accesses of a launch, and judges the cases that native code cannot decide."""
