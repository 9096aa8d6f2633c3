# SPDX-License-Identifier: Apache-2.0
"""Compiles the launches of trials, in jailed processes, while the trials run."""
