# SPDX-License-Identifier: Apache-2.0
"""Honest kernel programs for the task relu(x + y) * 2, written in many ways."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

LOCALS = [
    "data", "type_", "e", "input", "id", "größe", "λ", "hash", "vars", "out", "dir", "compile", "result", "x_hat",
]  # fmt: skip
DOCS = [
    '"""Adds and clips."""',
    '"""As in `def forward(self, x): return eval(x)`, but fused; see open() and exec(...)."""',
    '"""Computes:\n\n    ```python\n    import os; os.system("true")\n    ```\n    """',
    "# no eval(, no __import__, no getattr(x, '__class__')",
]
DECORATORS = [
    "@triton.jit",
    '@triton.autotune(configs=[triton.Config({"B": 256}, num_warps=4)], key=["n"])\n@triton.jit',
    '@triton.heuristics({"B": lambda args: 256 if args["n"] > 0 else 128})\n@triton.jit',
    '@triton.heuristics({"B": lambda args: max(256, 128)})  # def k(x):\n@triton.jit',
]
CONFIGS = [
    ("", "256"),
    ('CONFIG = {"block": 256}\nCONFIG["warps"] = 4', 'CONFIG["block"]'),
    ("@dataclass(frozen=True)\nclass Config:\n    block: int = 256", "Config().block"),
    ("class Blocks(enum.IntEnum):\n    WIDE = 256", "Blocks.WIDE.value"),
    ('Launch = namedtuple("Launch", ["block"])', "Launch(256).block"),
    ("class Sizes:\n    BLOCK = 128\n    WIDE = BLOCK * 2", "Sizes.WIDE"),
]
WAYS = ["method", "function", "static", "autograd", "module", "nested"]
IMPORTS = """import enum
import functools
import math
import operator
from collections import namedtuple
from dataclasses import dataclass
from typing import Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""


@dataclass(frozen=True)
class Style:
    local: str
    kernel: str
    doc: str
    decorator: str
    config: tuple[str, str]
    way: str
    size: str
    grid: str
    lazy: bool
    helper: bool
    two: bool
    check: str

    def source(self) -> str:
        first = "from __future__ import annotations\n\n" if self.lazy else ""
        parts = [first + IMPORTS, self.config[0], self._helper(), self._kernel(), self._launch(), self._model()]
        main = 'if __name__ == "__main__":\n    import sys\n\n    print(ModelNew()(*[torch.ones(3)] * 2), sys.argv)'
        return "\n\n".join(part for part in [*parts, main] if part) + "\n"

    def _helper(self) -> str:
        if not self.helper:
            return ""
        return f"@triton.jit\ndef clipped({self.local}):\n    return tl.maximum({self.local}, 0.0)"

    def _kernel(self) -> str:
        clip = "clipped(s)" if self.helper else "tl.maximum(s, 0.0)"
        place = "(tl.program_id(0) + tl.program_id(1))" if self.two else "tl.program_id(0)"
        return (
            f"{self.decorator}\ndef {self.kernel}(x, y, o, n, B: tl.constexpr):\n    {self.doc}\n"
            f"    i = {place} * B + tl.arange(0, B)\n"
            f"    s = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)  # x + y\n"
            f"    tl.store(o + i, {clip} * 2.0, mask=i < n)"
        )

    def _body(self) -> str:
        name, block = self.local, "" if "B" in self.decorator else f", B={self.config[1]}"
        grid = self.grid.format(block=self.config[1])
        grid = f"lambda meta: (triton.cdiv({name}.numel(), {self.config[1]}), 1)" if self.two else grid
        return (
            f"{self.check}\n{name} = torch.empty_like(x)\nn: int = {self.size}\ngrid = {grid}\n"
            f"{self.kernel}[grid](x, y, {name}, n{block})\nreturn {name}"
        )

    def _launch(self) -> str:
        signature = "x: torch.Tensor, y: torch.Tensor"
        if self.way == "function":
            return f"def run({signature}) -> torch.Tensor:\n    {self.doc}\n" + _indented(self._body(), 1)
        if self.way == "autograd":
            lines = f"class Run(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, {signature}):\n"
            return lines + _indented(self._body(), 2)
        if self.way == "module":
            return f"class Inner(nn.Module):\n    def forward(self, {signature}):\n" + _indented(self._body(), 2)
        return ""

    def _model(self) -> str:
        call = {
            "function": "return run(x, y)",
            "autograd": "return Run.apply(x, y)",
            "module": "return self.inner(x, y)",
            "static": "return self.run(x, y)",
            "nested": "def run():\n" + _indented(self._body(), 1) + "\n\nreturn run()",
        }.get(self.way, self._body())
        head = f"class ModelNew(nn.Module):\n    {self.doc}\n\n    def __init__(self, kind: Optional[str] = None):\n"
        head += "        super().__init__()\n        self.kind, self.scale = kind, float(np.sqrt(4.0)) * math.pi\n"
        head += "        self.inner = Inner()\n" if self.way == "module" else ""
        static = "\n    @staticmethod\n    def run(x, y):\n" + _indented(self._body(), 2) + "\n"
        head += static if self.way == "static" else ""
        return head + "\n    def forward(self, x, y):\n" + _indented(call, 2)


def _indented(text: str, levels: int) -> str:
    return "\n".join("    " * levels + line if line else "" for line in text.splitlines())


SIZES = [
    "x.numel()", "torch.numel(x)", "math.prod(x.shape)", "int(np.prod(x.shape))", "x.size(0) * x.shape[1]",
    "functools.reduce(operator.mul, x.shape, 1)", "sum(1 for _ in range(x.shape[0])) * x.size(-1)",
]  # fmt: skip
GRIDS = [
    "(triton.cdiv(n, {block}),)",
    "(int(np.ceil(n / {block})),)",
    'lambda meta: (triton.cdiv(n, meta["B"]),)',
    "((n + {block} - 1) // {block}, 1, 1)",
]
CHECKS = [
    "assert x.is_contiguous() and y.is_contiguous(), f'strides {x.stride()} of {tuple(x.shape)!r:>10}'",
    "assert x.data_ptr() % 4 == 0",
    "if x.shape != y.shape:\n    raise ValueError(f'{type(x).__name__}: {x.shape} and {y.shape}')",
    "dims = [e for e in x.shape if (last := e)]\nassert last == dims[-1]",
    "for at, type in enumerate(x.shape):\n    assert type > at - 1",
]
STYLES = st.builds(
    Style, local=st.sampled_from(LOCALS), kernel=st.sampled_from(["fused_kernel", "k", "_add", "Kernel2"]),
    doc=st.sampled_from(DOCS), decorator=st.sampled_from(DECORATORS), config=st.sampled_from(CONFIGS),
    way=st.sampled_from(WAYS), size=st.sampled_from(SIZES), grid=st.sampled_from(GRIDS), lazy=st.booleans(),
    helper=st.booleans(), two=st.booleans(), check=st.sampled_from(CHECKS),
)  # fmt: skip
