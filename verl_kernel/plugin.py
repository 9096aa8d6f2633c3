# SPDX-License-Identifier: Apache-2.0
"""Entry point `verl.plugins`: verl imports this module in every process (driver and Ray workers)."""
