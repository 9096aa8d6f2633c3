# SPDX-License-Identifier: Apache-2.0
"""Costs and prices of torch's ops on a GPU; `table.py` has one row for each op."""
