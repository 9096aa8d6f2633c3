# SPDX-License-Identifier: Apache-2.0
"""One command for the first GPU: what the jail lets through, what our times mean, every verdict, and how fast it goes.

Run: python benchmarks/bench_gpu.py --out DIR [--wheels DIR] [--minutes 9] [--sections NAME ...] [--pretend]

Needs a GPU and what `requirements/gym.txt` names; `--wheels` is a folder with the wheels of what this Python lacks
(`make gpu-wheels`). Each section runs in a process of its own with a time limit of its own, so that one that fails or
hangs costs the others nothing. The folder then holds `report.md`, `report.json`, `findings.jsonl` (line by line as
found), `output.log` (what the sections printed) and `junit.xml`. `--pretend` goes through all of it without a GPU, on a
pretended one; its times mean nothing. The status is 0 if every section came to its end, whatever it found.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu.driver import Section, run_sections  # noqa: E402  the path comes first
from benchmarks.gpu.findings import FILE  # noqa: E402
from benchmarks.gpu.report import summary  # noqa: E402

SECTIONS = (
    Section("environment", "benchmarks.gpu.environment", 40),
    Section("isolation", "benchmarks.gpu.isolation", 70),
    Section("a/a", "benchmarks.gpu.against_itself", 80),
    Section("times", "benchmarks.gpu.times", 80),
    Section("evaluations per second", "benchmarks.gpu.rates", 90),
    Section("corpus", "benchmarks.gpu.corpus", 120),
    Section("tests", "benchmarks.gpu.suite", 400),
)
"""In the order of what the next ones build on; the longest comes last and gets what is left."""
MORE = (Section("conformance", "benchmarks.gpu.conformance", 180),)
"""For which nine minutes have no room: run where they are named."""


def main() -> int:
    """Run the sections that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the report and all else")
    parser.add_argument("--wheels", type=Path, help="folder of wheels for what this Python lacks")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all of it")
    sections = {section.name: section for section in (*SECTIONS, *MORE)}
    parser.add_argument(
        "--sections", nargs="+", choices=sections, default=[section.name for section in SECTIONS],
        help="only these; one alone may last all the minutes",
    )  # fmt: skip
    parser.add_argument("--pretend", action="store_true", help="on a pretended GPU")
    options = parser.parse_args()
    if (options.out / FILE).exists():
        parser.error(f"{options.out} holds an earlier report: name another folder")
    chosen = [section for name, section in sections.items() if name in options.sections]
    if len(chosen) == 1:
        chosen = [replace(chosen[0], limit_s=60 * options.minutes)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as carried:
        if options.wheels:
            Path(carried).chmod(0o755)
            script = str(ROOT / "requirements" / "gym.py")
            subprocess.run([sys.executable, script, "carry", str(options.wheels), carried], check=True)
        whole = run_sections(chosen, options.out.resolve(), options.pretend, 60 * options.minutes, carried)
    sys.stdout.write(summary(options.out))
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
