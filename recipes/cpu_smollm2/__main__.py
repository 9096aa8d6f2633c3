# SPDX-License-Identifier: Apache-2.0
"""Make the pretrained model as `python -m recipes.cpu_smollm2`."""

from recipes.cpu_smollm2.command import app

app()
