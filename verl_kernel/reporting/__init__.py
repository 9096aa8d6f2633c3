# SPDX-License-Identifier: Apache-2.0
"""What a run left behind, made readable: its steps as tables and curves, its best kernels, one page of it all."""
