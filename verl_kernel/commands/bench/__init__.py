# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel bench`, and `verl-kernel bench-curves` over its runs."""

from verl_kernel.commands.bench.run import command

__all__ = ["command"]
