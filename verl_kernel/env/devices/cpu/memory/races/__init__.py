# SPDX-License-Identifier: Apache-2.0
"""Which accesses of a launch race."""
