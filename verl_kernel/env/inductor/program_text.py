# SPDX-License-Identifier: Apache-2.0
"""Writes what a compiled reference runs as a program in the form of a candidate, which runs the same at each call.

The program holds no values: its weights are tensors of the right form. So it has the reference's launches and ops, and
is good for a forward without data only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.inductor.kernel_texts import HEADER, KernelTexts, NotWritten
from verl_kernel.env.inductor.recording import Configuration, KernelCall, OpCall, Recording

_HEAD = f"""\
import torch
from torch.utils import _pytree as pytree
{HEADER}
"""
_CLASS = """

class {name}(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
{weights}

    def forward(self, *args, **kwargs):
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
{calls}
        return {output}
"""
_CONSTANTS = (torch.dtype, torch.memory_format, torch.layout)


def write_program(name: str, inputs: Any, recording: Recording) -> str:
    """Return the text of a program that does what a recording says.

    Args:
        name: of the program's class.
        inputs: arguments of the recorded call, as nested data.
        recording: of the call.

    Raises:
        NotWritten: something has no text.
    """
    return _Writer(name, inputs).program(recording)


class _Writer:
    """Names the tensors of one recording."""

    def __init__(self, name: str, inputs: Any) -> None:
        self._name, self._kernels = name, KernelTexts()
        self._names: dict[int, str] = {}
        self._weights: list[str] = []
        self._count = 0
        leaves = (leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
        for number, leaf in enumerate(leaves):
            self._names.setdefault(id(leaf), f"inputs[{number}]")

    def program(self, recording: Recording) -> str:
        """Return the program's text."""
        calls = [line for call in recording.calls for line in self._lines(call)]
        output = self._text(recording.output)
        kernels = "\n\n".join(self._kernels.texts)
        body = _CLASS.format(
            name=self._name, weights=_indented(self._weights) or "        pass", calls=_indented(calls), output=output
        )
        return f"{_HEAD}\n{kernels}{body}"

    def _lines(self, call: OpCall | KernelCall) -> Iterator[str]:
        if isinstance(call, KernelCall):
            arguments = ", ".join(f"{name}={self._text(value)}" for name, value in call.arguments.items())
            name = self._kernels.name(call.kernel, [_config(way) for way in call.configurations])
            yield f"{name}[{_grid(call.configurations)}]({arguments})"
            return
        arguments = ", ".join([*map(self._text, call.args), *(f"{k}={self._text(v)}" for k, v in call.kwargs.items())])
        yield from self._assigned(call.result, f"torch.ops.{call.op}({arguments})")

    def _assigned(self, result: Any, expression: str) -> Iterator[str]:
        """Yield lines that run an op and name what it returns; what an op returns of its arguments keeps its name."""
        self._count += 1
        name = f"t{self._count}"
        yield f"{name} = {expression}"
        leaves = list(enumerate(result)) if isinstance(result, list | tuple) else [(None, result)]
        for path, leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                self._names.setdefault(id(leaf), name if path is None else f"{name}[{path}]")

    def _text(self, value: Any) -> str:
        """Return an expression for a value (raises NotWritten)."""
        if isinstance(value, torch.Tensor):
            return self._names.get(id(value)) or self._weight(value)
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if value is None or isinstance(value, bool | int | float | str | complex):
            return repr(value)
        if isinstance(value, _CONSTANTS):
            return str(value)
        if isinstance(value, torch.device):
            return "'cpu'"
        return self._nested(value)

    def _nested(self, value: Any) -> str:
        if type(value) is dict:
            return "{" + ", ".join(f"{key!r}: {self._text(item)}" for key, item in value.items()) + "}"
        if type(value) is list:
            return "[" + ", ".join(map(self._text, value)) + "]"
        if isinstance(value, tuple) and type(value) in (tuple, torch.Size):
            return "(" + "".join(f"{self._text(item)}, " for item in value) + ")"
        raise NotWritten(f"a call has an argument of type {type(value).__name__}")

    def _weight(self, tensor: torch.Tensor) -> str:
        """Name a tensor that nothing has made: a weight or a constant."""
        name = f"self.w{len(self._weights)}"
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
        self._weights.append(f"{name} = torch.empty_strided({size}, {stride}, dtype={tensor.dtype})")
        self._names[id(tensor)] = name
        return name


def _config(way: Configuration) -> str:
    return f"triton.Config({dict(way.blocks)!r}, num_warps={way.warps}, num_stages={way.stages})"


def _grid(ways: Sequence[Configuration]) -> str:
    """Return a function that looks up the grid of a configuration by its blocks."""
    grids = {tuple(way.blocks.values()): way.grid for way in ways}
    blocks = "".join(f"meta[{name!r}], " for name in ways[0].blocks)
    return f"lambda meta: {grids!r}[({blocks})]"


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"        {line}" for line in lines)
