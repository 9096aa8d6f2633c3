# SPDX-License-Identifier: Apache-2.0
"""Compares estimators by the gradients that they make of the same rollouts, before any of them trains."""
