# SPDX-License-Identifier: Apache-2.0
"""Judges tasks too large for this machine: values at reduced sizes, the time at the true size."""
