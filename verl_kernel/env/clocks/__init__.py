# SPDX-License-Identifier: Apache-2.0
"""Clocks turn a verified evaluation into times and a profile."""
