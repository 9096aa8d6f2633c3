# SPDX-License-Identifier: Apache-2.0
"""Clocks of the gym: what an op or a launch costs, and what that amounts to in milliseconds."""
