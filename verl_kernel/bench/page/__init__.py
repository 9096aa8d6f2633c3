# SPDX-License-Identifier: Apache-2.0
"""The report of a bench: one HTML file that loads nothing from elsewhere."""
