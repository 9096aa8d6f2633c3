# SPDX-License-Identifier: Apache-2.0
"""Describes what a launch costs on a GPU, in the terms of the machine model.

This module holds the names of the units by which operations are counted: judges import it, and it imports nothing that
generates native code.
"""

PRODUCTS = ("half", "tf32", "fma")
"""Units for products of matrices, the cheapest first."""
NARROW, WIDE = "narrow", "wide"
"""Floating-point operations that are not products of matrices: of 16 bits, and of more."""
