# SPDX-License-Identifier: Apache-2.0
"""The scripts in requirements/ run before anything is installed, so they are no package: tests import them by path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "requirements"))
