# SPDX-License-Identifier: Apache-2.0
"""The parts that all pages share: templates that escape all their values, and one style sheet."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from verl_kernel.files import replacing
from verl_kernel.reporting import charts

_PACKAGE = "verl_kernel.reporting"


def page_environment(package: str, styles: Sequence[str] = (), scripts: Sequence[str] = ()) -> Environment:
    """Return the templates of a package, with those that all pages share, its style and its scripts.

    Args:
        package: holds `templates/` and `static/`.
        styles: further style sheets in `static/`, after the one of all pages.
        scripts: scripts in `static/`; a page without any runs none.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader(_PACKAGE)])
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    style = "".join([_static(_PACKAGE, "page.css"), *(_static(package, name) for name in styles)])
    script = "".join(_static(package, name) for name in scripts)
    environment.globals |= {"chart_size": charts, "script_hash": _hash(script), "style_hash": _hash(style)}
    environment.globals |= {"style": Markup(style), "script": Markup(script)}  # the package's own text
    return environment


def write_page(path: Path, page: str) -> Path:
    """Replace a page; the older one stays if the disk is full; raises OSError."""
    with replacing(path) as part:
        part.write_text(page, encoding="utf-8", errors="backslashreplace")  # A name may hold lone surrogates.
    return path


def _static(package: str, name: str) -> str:
    return files(package).joinpath(f"static/{name}").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
