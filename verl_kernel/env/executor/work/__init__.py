# SPDX-License-Identifier: Apache-2.0
"""What a launch that has run costs on a GPU, in the words of the machine model.

The names of units by which operations are told apart stand here: judges import them, and nothing that makes native
code.
"""

PRODUCTS = ("half", "tf32", "fma")
"""Units for products of matrices, the cheapest first."""
NARROW, WIDE = "narrow", "wide"
"""Floating-point operations that are no products: of 16 bits, of more."""
