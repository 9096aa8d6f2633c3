# SPDX-License-Identifier: Apache-2.0
"""What a launch does, as the machine model wants to know it."""
