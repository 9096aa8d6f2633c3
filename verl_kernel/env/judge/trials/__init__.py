# SPDX-License-Identifier: Apache-2.0
"""Trials: the plan of their inputs and places, the correctness stage, and a survey of a candidate over many trials."""
