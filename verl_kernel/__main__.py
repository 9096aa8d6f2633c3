# SPDX-License-Identifier: Apache-2.0
"""`python -m verl_kernel` is `verl-kernel`."""

from verl_kernel.cli import app

app()
