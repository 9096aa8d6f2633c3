# SPDX-License-Identifier: Apache-2.0
"""From an answer to its reward: code extraction, the PR formula, and what no judge could judge."""
