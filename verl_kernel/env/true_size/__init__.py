# SPDX-License-Identifier: Apache-2.0
"""Judging tasks that are too large for this machine: at reduced sizes for the values, at the true size for the time."""
