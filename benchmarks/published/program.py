# SPDX-License-Identifier: Apache-2.0
"""A task of ours, and a candidate for it: kernels of a package behind a host part of ours."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.published.packages import Part

IMPORTS = """import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, Optional, Tuple, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
"""
TRITON = """import triton
import triton.language as tl
from triton.language.extra import libdevice
"""


@dataclass(frozen=True)
class Program:
    """What is asked and what is answered.

    `inputs` and `parameters` say how each is made, and equal ones share a row. `init` names sizes that the model is
    given beside those of its parameters. `decorator` replaces those of the last object of the last part. `before`
    stands in front of the package's text. `changes` are replacements in that text, `wrong` is one in the whole that
    makes it wrong.
    """

    parts: Part | tuple[Part, ...]
    sizes: str
    inputs: dict[str, str]
    reference: str
    host: str
    init: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    decorator: str | None = None
    before: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    wrong: tuple[str, str] | None = None

    def task(self) -> str:
        """The reference program."""
        made = f"def get_inputs():\n    return [{', '.join(each(self.inputs).values())}]\n"
        asked = f"def get_init_inputs():\n    return [{', '.join(self._given())}]\n"
        return "\n\n".join((IMPORTS, self._model("Model", self.reference), f"{self.sizes}\n", made, asked))

    def candidate(self, folder: Path, is_wrong: bool = False) -> str:
        """The program that is judged, from the packages in a folder."""
        parts = (self.parts,) if isinstance(self.parts, Part) else self.parts
        if self.decorator is not None:
            parts = (*parts[:-1], replace(parts[-1], decorator=self.decorator))
        taken = "\n\n".join(part.text(folder) for part in parts)
        for old, new in self.changes:
            taken = replaced(taken, old, new)
        model = self._model("ModelNew", self.host)
        text = "\n\n".join((IMPORTS + TRITON, textwrap.dedent(self.before), taken, model))
        return replaced(text, *self.wrong) if is_wrong and self.wrong else text

    def _given(self) -> list[str]:
        """The sizes that the model is given."""
        sizes = self.sizes.partition("=")[0].replace(",", " ").split()
        asked = " ".join((self.init, *self.parameters.values()))
        return [size for size in sizes if re.search(rf"\b{size}\b", asked)]

    def _model(self, name: str, body: str) -> str:
        kept = [f"        self.{key} = nn.Parameter({value})" for key, value in each(self.parameters).items()]
        kept += [f"        self.{key} = {key}" for key in self._given()]
        lines = textwrap.dedent(body).strip()
        lines = lines if "return " in lines else f"return {lines}"
        return "\n".join([
            f"class {name}(nn.Module):",
            f"    def __init__({', '.join(['self', *self._given()])}):",
            "        super().__init__()",
            *kept,
            "",
            f"    def forward({', '.join(['self', *each(self.inputs)])}):",
            textwrap.indent(lines, " " * 8),
            "",
        ])  # fmt: skip


def each(rows: dict[str, str]) -> dict[str, str]:
    """Rows of names, with a row for each name."""
    return {name: value for names, value in rows.items() for name in names.split()}


def replaced(text: str, old: str, new: str) -> str:
    """A text with a part of it replaced, which must be there."""
    if old not in text:
        raise ValueError(f"there is no {old!r} to replace")
    return text.replace(old, new)
