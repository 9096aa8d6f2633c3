# SPDX-License-Identifier: Apache-2.0
"""Finds accesses of a launch that race: what native code leaves open is judged here."""
