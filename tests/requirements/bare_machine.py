# SPDX-License-Identifier: Apache-2.0
"""A GPU machine as one finds it: torch, triton, numpy, psutil, pytest and pip, and nothing else of this environment.

A virtual environment whose packages are links to those of this one; psutil lies elsewhere, in the user's PYTHONPATH.
"""

import importlib.metadata
import os
import re
import venv
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

THERE = ("torch", "triton", "numpy", "psutil", "pytest", "pip", "setuptools")
CARRIED = ("nvidia-ml-py", "pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection")


def needs(names: tuple[str, ...]) -> dict[str, importlib.metadata.Distribution]:
    """These distributions and all they ask for, without their extras."""
    found, left = {}, list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # a CUDA library that this build of torch does without
            continue
        wanted = map(Requirement, found[name].requires or ())
        left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Lay links to a distribution's files into a folder of packages."""
    tops = {path.parts[0] for path in distribution.files or () if path.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(distribution.locate_file(top))


def make_machine(folder: Path) -> dict[str, str]:
    """Lay it out; the variables of a shell on it."""
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    for name, distribution in needs(THERE).items():
        place = folder / "elsewhere" if name == "psutil" else site
        place.mkdir(exist_ok=True)
        link(distribution, place)
    path = os.pathsep.join([str(folder / "venv" / "bin"), "/usr/bin", "/bin"])
    return {"PATH": path, "PYTHONPATH": str(folder / "elsewhere"), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def pack_wheels(folder: Path) -> None:
    """The wheels of nvidia-ml-py, of pydantic and what it needs, from what is installed here."""
    folder.mkdir()
    for name in CARRIED:
        distribution = importlib.metadata.distribution(name)
        lines = (distribution.read_text("WHEEL") or "").splitlines()
        tag = next(line.partition(": ")[2] for line in lines if line.startswith("Tag:"))
        wheel = folder / f"{name.replace('-', '_')}-{distribution.version}-{tag}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path in distribution.files or ():
                if ".." not in path.parts and path.suffix != ".pyc":
                    archive.write(distribution.locate_file(path), str(path))
