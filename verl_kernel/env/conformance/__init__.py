# SPDX-License-Identifier: Apache-2.0
"""A suite of programs that every device and every pool must judge alike."""
