# SPDX-License-Identifier: Apache-2.0
"""Torch's ops as a GPU runs them: `table.py` has one row for each."""
