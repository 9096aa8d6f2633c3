# SPDX-License-Identifier: Apache-2.0
"""Installs wheels with uv, from the indexes that pip is configured for.

uv keeps every download that was finished, so an interrupted installation goes on where it stopped. It does not read
pip's configuration, where a private index, a folder of wheels or a certificate may be named: this file hands it over.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from machine import Refused

_OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
    "cert": "--cert",
}
_SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_CAUSES = {
    r"No space left on device|Disk quota exceeded": "the disk is full: free some space, or name another disk with "
    "`make env VENV=/disk/venv` and UV_CACHE_DIR=/disk/cache",
    r"dns error|error sending request|Failed to fetch|timed out|Could not find a version|Connection|SSL": "the package "
    "index did not answer: check the network, or name another index in pip's configuration (index-url)",
    r"no version of|no wheels|unsatisfiable": "the package index lacks a locked version: use one that has all of PyPI",
}


class Wheels:
    """pip and uv of one virtual environment."""

    def __init__(self, venv: Path, plain: bool) -> None:
        """Take the environment in `venv`; `plain` ignores all configuration of pip and uv."""
        self.python, self._uv = venv / "bin" / "python", venv / "bin" / "uv"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not (plain and name.startswith(("PIP_", "UV_")))},
            **({"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"} if plain else {}),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }
        self._config: dict[str, list[str]] | None = None

    def bootstrap(self, requirement: str) -> None:
        """Install uv itself with pip (`uv==1.2.3`), unless that version is there."""
        if not self._uv.exists() or requirement.partition("==")[2] not in self._run(self._uv, "--version"):
            # The pip that comes with Python trusts certificates of its own only, and fails behind a proxy's.
            trusted = {"PIP_CERT": _certificates()} if "cert" not in self._pip_config() and _certificates() else {}
            self._run(self.python, "-m", "pip", "install", "--quiet", requirement, environment=trusted)

    def install(self, *arguments: str | Path, index: str = "") -> None:
        """`uv pip install --no-deps ARGUMENTS`, from pip's indexes or from `index` alone; nothing where all is there.

        Raises:
            Refused: it failed; the message names the cause and the remedy.
        """
        self._run(*self._command(index), *arguments, show=True)

    def offers(self, requirement: str, index: str = "") -> bool:
        """Whether pip's indexes, or `index` alone, have a wheel for this Python."""
        impatient = {**self.environment, "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "1"}
        command = [*self._command(index), "--dry-run", "--quiet", requirement]
        try:
            return subprocess.run(command, env=impatient, capture_output=True, timeout=60).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def forget(self, names: list[str]) -> None:
        """Drop the cached downloads of these packages: damaged files may be hard links to them."""
        if names:
            self._run(self._uv, "cache", "clean", "--quiet", *names)

    @property
    def cache(self) -> Path:
        """Folder of finished downloads."""
        return Path(self._run(self._uv, "cache", "dir").splitlines()[-1])  # above it may stand warnings

    def _command(self, index: str) -> list[str]:
        options = uv_options(self._pip_config(), index)
        return [str(self._uv), "pip", "install", "--python", str(self.python), "--no-deps", *options]

    def _pip_config(self) -> dict[str, list[str]]:
        """What pip is configured for, by the name of its option."""
        if self._config is None:
            self._config = pip_config(self._run(self.python, "-m", "pip", "config", "list"))
        return self._config

    def _run(self, *command: str | Path, show: bool = False, environment: dict[str, str] | None = None) -> str:
        with subprocess.Popen(
            command, env={**self.environment, **(environment or {})}, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            lines = []
            for line in process.stdout or ():
                lines.append(line)
                if show and re.match(r" ?(Downloading|Downloaded|Building|Prepared|Installed) ", line):
                    sys.stdout.write(f"    {line.strip()}\n")
                    sys.stdout.flush()
        if process.returncode:
            raise Refused(explain("".join(lines)))
        return "".join(lines)


def pip_config(listed: str) -> dict[str, list[str]]:
    """The output of `pip config list` as words by option, in pip's precedence."""
    lines = re.findall(r"^(\S+?)\.([a-z-]+)=('.*'|\".*\")$", listed, re.M)
    # What is said for `pip install` wins over [global], and variables win over files.
    lines.sort(key=lambda line: {"global": 0, "install": 1, ":env:": 2}.get(line[0], -1))
    return {key: ast.literal_eval(value).split() for _, key, value in lines}


def uv_options(config: dict[str, list[str]], index: str = "") -> list[str]:
    """Options of uv for pip's indexes, folders of wheels, hosts without TLS and certificates.

    pip takes the best version on all indexes, so uv is told to do the same. A non-empty `index` takes the place of all
    of them.
    """
    if index:
        config = {"index-url": [index], **{key: config[key] for key in ("cert", "trusted-host") if key in config}}
    options = ["--index-strategy", "unsafe-best-match"]
    if config.get("no-index", ["0"])[0].lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    for key, option in _OPTIONS.items():
        for value in config.get(key, []):
            options += [option, value]
    return options if "cert" in config or not _certificates() else [*options, "--cert", _certificates()]


def _certificates() -> str:
    """The machine's own file of trusted certificates, empty where there is none."""
    return next((path for path in _SYSTEM_CERTIFICATES if Path(path).exists()), "")


def explain(output: str) -> str:
    """One sentence for a failed installation: the known cause with its remedy, else the last thing that was said."""
    unwrapped = re.sub(r"\n {6,}(?=\S)", " ", output)  # uv breaks its sentences where COLUMNS is set
    for pattern, sentence in _CAUSES.items():
        found = re.search(f".*({pattern}).*", unwrapped)
        if found:
            return f"{sentence} ({found.group(0).strip()})"
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no word of the cause")
    return f"an installation step failed ({last}): `make env` again goes on where it stopped"
