# SPDX-License-Identifier: Apache-2.0
"""What the operating system takes away from a candidate, and the little that it leaves."""
