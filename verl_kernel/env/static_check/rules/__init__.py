# SPDX-License-Identifier: Apache-2.0
"""The rules of the static gate, grouped by what they inspect."""
