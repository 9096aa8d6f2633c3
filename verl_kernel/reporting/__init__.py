# SPDX-License-Identifier: Apache-2.0
"""Reports on a finished run: its steps as tables and curves, its best kernels, and one page with all of it."""
