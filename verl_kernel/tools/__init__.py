# SPDX-License-Identifier: Apache-2.0
"""Tools for agents that write kernels: to look at tasks, to try a program on public inputs, and to have it judged."""
