# SPDX-License-Identifier: Apache-2.0
"""Generated tasks: chains of operations, programs that answer them, and the conversations of a cold start."""
