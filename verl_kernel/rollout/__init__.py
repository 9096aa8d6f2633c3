# SPDX-License-Identifier: Apache-2.0
"""The multi-turn agent loop `kernel_agent` and what it tells the policy."""
