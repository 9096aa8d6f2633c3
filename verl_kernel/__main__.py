# SPDX-License-Identifier: Apache-2.0
"""Run the command line of `verl-kernel` as `python -m verl_kernel`."""

from verl_kernel.cli import app

app()
