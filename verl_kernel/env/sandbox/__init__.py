# SPDX-License-Identifier: Apache-2.0
"""Restrictions that the operating system enforces on a candidate's process."""
