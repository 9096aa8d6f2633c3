# SPDX-License-Identifier: Apache-2.0
"""Photograph the page that `verl-kernel report` wrote of a training: python -m docs.images.training_page RUN_DIR."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.page.chromium import Chromium

IMAGES = Path(__file__).parent


def photograph(folder: Path) -> None:
    """Write training_page.png."""
    with TemporaryDirectory() as profile:
        browser = Chromium(Path(profile))
        try:
            browser.resize(1280, 1100)
            browser.open((folder / "report.html").resolve())
            browser.screenshot(IMAGES / "training_page.png")
        finally:
            browser.close()


if __name__ == "__main__":
    photograph(Path(sys.argv[1]))
