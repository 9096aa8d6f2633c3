# SPDX-License-Identifier: Apache-2.0
"""Run a study as `python -m recipes.cpu_study`."""

from recipes.cpu_study.command import app

app()
