# SPDX-License-Identifier: Apache-2.0
"""A run's report as one HTML page that needs nothing else: figure, style and sources are in it.

Kernels are what an untrusted policy wrote: everything put into the page is escaped, and the page runs no script.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader

from verl_kernel.reporting.facts import run_facts
from verl_kernel.reporting.kernels import best_kernels, read_kernels
from verl_kernel.reporting.steps import COLUMNS, Step, cell, step_rows
from verl_kernel.reporting.summary import before_and_after, first_and_last, window

KERNELS_SHOWN = 10


def write_page(folder: Path, steps: Sequence[Step], validations: Sequence[Step], figure: Path | None) -> Path:
    """Write `report.html` into a run's folder.

    Args:
        folder: the run; `kernels.jsonl` and `.hydra/config.yaml` in it are used where they are.
        steps: training steps.
        validations: what `steps.read_validations` found.
        figure: a PNG to embed.

    Returns:
        The page's path.
    """
    environment = Environment(loader=PackageLoader("verl_kernel.reporting"), autoescape=True, trim_blocks=True)
    environment.filters["cell"] = cell
    page = environment.get_template("report.html").render(
        name=folder.resolve().name,
        facts=run_facts(folder, steps),
        window=window(steps),
        training=[change.cells for change in first_and_last(steps)],
        held_out=[change.cells[: 4 if len(validations) > 1 else 2] for change in before_and_after(validations)],
        validated=[validation["step"] for validation in validations],
        figure=None if figure is None else base64.b64encode(figure.read_bytes()).decode(),
        kernels=best_kernels(read_kernels(folder / "kernels.jsonl"), KERNELS_SHOWN),
        columns=["step", *COLUMNS],
        rows=step_rows(steps),
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8", errors="backslashreplace")  # A source may hold lone surrogates.
    return path
