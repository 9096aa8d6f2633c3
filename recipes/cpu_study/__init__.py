# SPDX-License-Identifier: Apache-2.0
"""Runs training with one setting varied, repeated over seeds, and compares the results."""
