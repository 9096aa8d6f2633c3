# SPDX-License-Identifier: Apache-2.0
"""A suite of programs that must get the same verdicts on every device and in every pool."""
