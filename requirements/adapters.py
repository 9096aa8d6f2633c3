# SPDX-License-Identifier: Apache-2.0
"""`make adapters-env`: other trainers and harnesses, each in a folder of its own, for tests/adapters.

What they need contradicts the environment's packages, so it stands before these only where a test puts its folder into
PYTHONPATH. Run it as often as you like: it installs what is missing or was changed in requirements/adapters.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from machine import Refused
from wheels import Wheels

LISTS = Path(__file__).with_name("adapters")
PYTHONS = {"nemo_gym": (3, 11), "openenv": (3, 10), "skyrl": (3, 10), "trl": (3, 10), "verifiers": (3, 11)}
"""The Python that each list of requirements/adapters needs at least."""
NEMO_GYM = ("nemo-gym==0.4.0", "--python-version=3.12")
"""It asks for Python 3.12, and its code runs on 3.11."""


def main() -> int:
    """Fill a folder for each list; status 1 after one sentence that says what is in the way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    wheels = Wheels(options.venv.absolute(), plain=False)
    try:
        for name in (name for name, least in PYTHONS.items() if sys.version_info >= least):
            fill(options.folder / name, name, wheels)
    except (Refused, OSError) as exc:
        sys.stderr.write(f"make adapters-env: {name}: {exc}; until then tests/adapters skips what needs it\n")
        return 1
    return 0


def fill(folder: Path, name: str, wheels: Wheels) -> None:
    """Install the packages of a list into a folder, unless they are there."""
    mark, file = folder / ".whole", LISTS / f"{name}.txt"
    wanted = f"Python {sys.version_info[0]}.{sys.version_info[1]}\n{file.read_text()}"
    if mark.exists() and mark.read_text() == wanted:
        return
    sys.stdout.write(f"==> packages of requirements/adapters/{name}.txt in {folder}\n")
    shutil.rmtree(folder, ignore_errors=True)
    if name == "nemo_gym":
        wheels.install("--target", folder, *NEMO_GYM)
    wheels.install("--target", folder, "-r", file)
    mark.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main())
