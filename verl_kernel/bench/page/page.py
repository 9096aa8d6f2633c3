# SPDX-License-Identifier: Apache-2.0
"""A bench as one HTML page: figures, curves, and every answer with its verdict.

Everything that a model or an endpoint sent is untrusted. Text in the markup is escaped; text that a script shows later
is stored as base64 and becomes text nodes. The page's policy (CSP) forbids all loading and all scripts except the
page's own, which it names by hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment

from verl_kernel.bench.page import texts
from verl_kernel.bench.page.details import completion_limit, task_details
from verl_kernel.bench.page.overview import all_figures, by_group, charts, headlines, pass_at_k, run_facts
from verl_kernel.bench.page.task_rows import TaskRow, task_rows
from verl_kernel.bench.page.texts import packed
from verl_kernel.bench.records import BenchTurn, read_run, read_tasks
from verl_kernel.bench.score_tables import VIEWS
from verl_kernel.bench.scores import attempt, clock, run_plan
from verl_kernel.figures.scoring import score
from verl_kernel.reporting import pages
from verl_kernel.reporting.pages import page_environment
from verl_kernel.reward.novelty import ColdStart

PAGE = "report.html"
_SCRIPTS = ("elements.js", "answers.js", "opening.js", "table.js")


def write_page(folder: Path, cold_start: ColdStart | None = None) -> Path:
    """Write `report.html` into the folder of a bench; the run may be unfinished.

    Args:
        folder: the run.
        cold_start: what its programs are compared with; None leaves novelty out.

    Returns:
        The page's path.

    Raises:
        DataError: the folder holds no readable run.
        OSError: the page cannot be written; an older one stays.
    """
    header, turns = read_run(folder)
    tasks = read_tasks(folder)
    plan, references = run_plan(header, tasks, turns), {task.task_id: task.reference for task in tasks}
    scores = score([attempt(turn, cold_start) for turn in turns], plan)
    rows, limit = task_rows(plan, turns), completion_limit(len(turns))
    page = (
        templates(_SCRIPTS)
        .get_template("page.html")
        .render(
            header=header,
            facts=run_facts(header, scores, turns),
            clock=clock(turns),
            scores=scores,
            headlines=headlines(scores),
            views=VIEWS,
            figures=all_figures(scores),
            groups=by_group(scores),
            passes=pass_at_k(scores),
            charts=charts(scores),
            rows=rows,
            known=_known_columns(rows, turns),
            packs=(packed(task_details(row, limit, references.get(row.task))) for row in rows),
            **_choices(rows),
        )
    )
    return pages.write_page(folder / PAGE, page)


def templates(scripts: Sequence[str] = ()) -> Environment:
    """Return the templates of a bench's pages, with their style and these scripts."""
    environment = page_environment("verl_kernel.bench.page", ["tasks.css"], scripts)
    environment.globals |= {"verdicts": texts.VERDICTS}
    environment.filters |= {name: getattr(texts, name) for name in ("factor", "percent", "milliseconds")}
    return environment


def _known_columns(rows: list[TaskRow], turns: list[BenchTurn]) -> dict[str, bool]:
    """Return which columns hold information; on a simulated clock every speedup is sure."""
    columns = {key: any(getattr(row, key) is not None for row in rows) for key in ("level", "family", "roofline")}
    return columns | {"sure": any(turn.result.timing_source == "cuda_event" for turn in turns)}


def _choices(rows: list[TaskRow]) -> dict[str, list[str]]:
    """Return the choices of the filters: the values that occur."""
    statuses = {status for row in rows for status in (*row.counts, row.status)}
    return {
        "statuses": [value for key in texts.VERDICTS if (value := getattr(key, "value", key)) in statuses],
        "levels": [str(level) for level in sorted({row.level for row in rows if row.level is not None})],
        "families": sorted({row.family for row in rows if row.family is not None}),
    }
