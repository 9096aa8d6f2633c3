# SPDX-License-Identifier: Apache-2.0
"""ACES: which of many tests tell candidates apart."""
