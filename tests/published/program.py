# SPDX-License-Identifier: Apache-2.0
"""A task of ours, and a candidate for it: kernels of a package behind a host part of ours."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from tests.published.packages import Part

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

    `inputs`, `init` and `parameters` say how each is made. `before` stands in front of the package's text, `after`
    behind it. `changes` are replacements in the package's text, `wrong` is one in the whole that makes it wrong.
    """

    name: str
    parts: tuple[Part, ...]
    sizes: str
    inputs: dict[str, str]
    reference: str
    host: str
    init: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    wrong: tuple[str, str] | None = None

    def task(self) -> str:
        """The reference program."""
        made = f"def get_inputs():\n    return [{', '.join(self.inputs.values())}]\n"
        asked = f"def get_init_inputs():\n    return [{', '.join(self.init.values())}]\n"
        sizes = f"{self.sizes.replace('; ', chr(10))}\n"
        return "\n\n".join((IMPORTS, self._model("Model", self.reference), sizes, made, asked))

    def candidate(self, folder: Path, is_wrong: bool = False) -> str:
        """The program that is judged, from the packages in a folder."""
        taken = "\n\n".join(part.text(folder) for part in self.parts)
        for old, new in self.changes:
            taken = replaced(taken, old, new)
        model = self._model("ModelNew", self.host)
        text = "\n\n".join((IMPORTS + TRITON, textwrap.dedent(self.before), taken, textwrap.dedent(self.after), model))
        return replaced(text, *self.wrong) if is_wrong and self.wrong else text

    def _model(self, name: str, body: str) -> str:
        kept = [f"        self.{key} = nn.Parameter({value})" for key, value in self.parameters.items()]
        kept += [f"        self.{key} = {key}" for key in self.init]
        lines = textwrap.dedent(body).strip()
        lines = lines if "return " in lines else f"return {lines}"
        return "\n".join([
            f"class {name}(nn.Module):",
            f"    def __init__({', '.join(['self', *self.init])}):",
            "        super().__init__()",
            *kept,
            "",
            f"    def forward({', '.join(['self', *self.inputs])}):",
            textwrap.indent(lines, " " * 8),
            "",
        ])  # fmt: skip


def replaced(text: str, old: str, new: str) -> str:
    """A text with a part of it replaced, which must be there."""
    if old not in text:
        raise ValueError(f"there is no {old!r} to replace")
    return text.replace(old, new)
