# SPDX-License-Identifier: Apache-2.0
"""Triton's language on the host, where its own interpreter falls short of a GPU."""
