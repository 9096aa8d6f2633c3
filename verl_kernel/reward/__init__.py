# SPDX-License-Identifier: Apache-2.0
"""Turns an answer into its reward: code extraction, the PR formula and the reward manager `kernelgym`."""
