# SPDX-License-Identifier: Apache-2.0
"""Names of units by which operations are told apart; judges import these, and nothing that makes native code."""

from __future__ import annotations

PRODUCTS = ("half", "tf32", "fma")
"""Units for products of matrices, the cheapest first."""
NARROW, WIDE = "narrow", "wide"
"""Floating-point operations that are no products: of 16 bits, of more."""
