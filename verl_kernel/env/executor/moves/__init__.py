# SPDX-License-Identifier: Apache-2.0
"""Whether a block of a kernel stores what it has loaded, by value."""
