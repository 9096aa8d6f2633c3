# SPDX-License-Identifier: Apache-2.0
"""A run's report as one HTML page that loads nothing else: it contains curves, style and sources.

An untrusted policy wrote the kernels: everything put into the page is escaped, and the page runs no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verl_kernel.reporting import pages
from verl_kernel.reporting.curves import run_charts
from verl_kernel.reporting.kernels import best_kernels, read_kernels
from verl_kernel.reporting.steps import COLUMNS, Step, cell, step_rows
from verl_kernel.reporting.summary import before_and_after, first_and_last, headlines, run_facts, timing_source, window

KERNELS_SHOWN = 10


def write_page(folder: Path, steps: Sequence[Step], validations: Sequence[Step]) -> Path:
    """Write `report.html` into a run's folder.

    Args:
        folder: the run; `kernels.jsonl` and `.hydra/config.yaml` in it are used if they exist.
        steps: training steps.
        validations: the result of `steps.read_validations`.

    Returns:
        The page's path.

    Raises:
        OSError: the page cannot be written; an older one stays.
    """
    environment = pages.page_environment("verl_kernel.reporting")
    environment.filters["cell"] = cell
    changes = first_and_last(steps)
    page = environment.get_template("report.html").render(
        name=folder.resolve().name,
        clock=timing_source(steps),
        facts=run_facts(folder, steps),
        window=window(steps),
        headlines=headlines(changes),
        training=[change.cells for change in changes],
        validation=[change.cells[: 4 if len(validations) > 1 else 2] for change in before_and_after(validations)],
        validated=[one["step"] for one in validations],
        charts=run_charts(steps, validations),
        kernels=best_kernels(read_kernels(folder / "kernels.jsonl"), KERNELS_SHOWN),
        columns=["step", *COLUMNS],
        rows=step_rows(steps),
    )
    return pages.write_page(folder / "report.html", page)
