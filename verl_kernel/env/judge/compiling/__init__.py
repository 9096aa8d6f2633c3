# SPDX-License-Identifier: Apache-2.0
"""Compiles what trials launched, in a jailed process beside them."""
