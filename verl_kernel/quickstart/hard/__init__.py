# SPDX-License-Identifier: Apache-2.0
"""The hard world: tasks at true sizes, where a model starts at 2 to 40 % and a lazy kernel earns a little."""
