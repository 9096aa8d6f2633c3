# SPDX-License-Identifier: Apache-2.0
"""The multi-turn agent loop `kernel_agent` and the feedback that it gives to the policy."""
