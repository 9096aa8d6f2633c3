# SPDX-License-Identifier: Apache-2.0
"""Represents the text of a PTX kernel as data."""
