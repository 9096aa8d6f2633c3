# SPDX-License-Identifier: Apache-2.0
"""Photograph the page of a bench, and one task of it: python -m docs.images.bench_page FOLDER TASK_NUMBER.

`python -m tests.bench.page.judged FOLDER` makes such a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.page.chromium import Chromium
from verl_kernel.bench.page.page import write_page

IMAGES = Path(__file__).parent


def photograph(folder: Path, task: int) -> None:
    """Write bench_page.png and bench_task.png."""
    page = write_page(folder)
    with TemporaryDirectory() as profile:
        browser = Chromium(Path(profile))
        try:
            browser.resize(1280, 1180)
            browser.open(page)
            browser.screenshot(IMAGES / "bench_page.png")
            browser.resize(1400, 900)
            browser.open(page, f"#task={task}")
            browser.wait("document.querySelector('dialog').open")
            browser.screenshot(IMAGES / "bench_task.png")
        finally:
            browser.close()


if __name__ == "__main__":
    photograph(Path(sys.argv[1]), int(sys.argv[2]))
