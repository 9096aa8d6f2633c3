# SPDX-License-Identifier: Apache-2.0
"""Checks against tampering: the runner's watch on its own process, and the judge's checks of the runner's trace."""
