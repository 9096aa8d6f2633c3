# SPDX-License-Identifier: Apache-2.0
"""Run an audit as `python -m recipes.cpu_study.audit`."""

from recipes.cpu_study.audit.command import app

app()
