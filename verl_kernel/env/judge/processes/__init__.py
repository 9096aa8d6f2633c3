# SPDX-License-Identifier: Apache-2.0
"""The processes that a judge starts: its zygote, and a runner per candidate."""
