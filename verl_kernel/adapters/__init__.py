# SPDX-License-Identifier: Apache-2.0
"""The gym for other trainers and harnesses, a thin module for each, which imports its framework and nothing of verl."""
