# SPDX-License-Identifier: Apache-2.0
"""The process of one section: `python -m benchmarks.gpu.section <name> <module> <setting>`.

A section is a module with `run(setting, findings)`.
"""

from __future__ import annotations

import faulthandler
import importlib
import sys

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.setting import Setting


def main() -> None:
    """Run it; an exception ends the process with status 1 after a traceback."""
    name, module, text = sys.argv[1:]
    setting = Setting.from_json(text)
    faulthandler.dump_traceback_later(max(1.0, setting.left_s() - 2.0))  # where it hung, before it is stopped
    importlib.import_module(module).run(setting, Findings(setting.out, name))
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
