# SPDX-License-Identifier: Apache-2.0
"""Candidate programs around one Triton kernel: some steps run in it, the others in torch before and after it.

Each program of a kernel takes one row of a matrix, or sixteen rows if it multiplies. All programs share the order of
their lines, so a small model learns them once.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.quickstart.ops import MATMUL, REDUCTIONS, Step
from verl_kernel.quickstart.tasks import Program

Steps = tuple[Step, ...]
Lines = tuple[str, ...]
_IMPORTS = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"


@dataclass(frozen=True)
class Layout:
    """The place of each step of a program: in the kernel, or in torch before or after it."""

    before: Steps
    inside: Steps
    after: Steps = ()

    @property
    def name(self) -> str:
        """Return the kernel's name: `fused_kernel`, `part_kernel`, or `copy_kernel` if it computes nothing."""
        if not self.inside:
            return "copy_kernel"
        return "part_kernel" if self.before + self.after else "fused_kernel"

    @property
    def torch_ops(self) -> tuple[str, ...]:
        """Return the device kernels that torch launches in one forward."""
        return tuple(name for step in self.before + self.after for name in step.op.aten)

    @property
    def share(self) -> float:
        """Return the kernel's share of the device kernels of one forward."""
        return 1 / (1 + len(self.torch_ops))


def layouts(program: Program) -> list[Layout]:
    """List every split of a program around one kernel; the first is fully fused, the last one only copies."""
    steps = program.steps
    splits = [Layout((), steps)]
    for cut in range(1, len(steps)):
        splits += [Layout(steps[:cut], steps[cut:]), Layout((), steps[:cut], steps[cut:])]
    return [*splits, Layout(steps, ())]


def render(program: Program, layout: Layout) -> str:
    """Return the source of a candidate."""
    before, after = (tuple(step.torch for step in steps) for steps in (layout.before, layout.after))
    closing = ("x = out", *after, "return x") if after else ("return out",)
    return module(program, _kernel(layout), (*before, *_launch(layout), *closing))


def module(program: Program, kernel: str, forward: Lines) -> str:
    """Return a program from a kernel and the body of `ModelNew.forward`."""
    return (
        f"{_IMPORTS}{kernel}\nclass ModelNew(nn.Module):\n"
        f"    def forward(self, {program.inputs}):\n{_indented(forward, 8)}"
    )


def _indented(lines: Lines, width: int) -> str:
    return "".join(f"{' ' * width}{line}\n" for line in lines)


def _kernel(layout: Layout) -> str:
    body = tuple(line for step in layout.inside for line in step.triton)
    parameters, load, store = _tile() if _multiplies(layout) else _row(_reduces(layout))
    return f"@triton.jit\ndef {layout.name}({parameters}, BLOCK: tl.constexpr):\n{_indented(load + body + store, 4)}"


def _multiplies(layout: Layout) -> bool:
    return any(step.name in MATMUL for step in layout.inside)


def _reduces(layout: Layout) -> bool:
    return any(step.name in REDUCTIONS for step in layout.inside)


def _row(reduces: bool) -> tuple[str, Lines, Lines]:
    load = (
        "row = tl.program_id(0)",
        "offs = tl.arange(0, BLOCK)",
        "mask = offs < cols",
        "x = tl.load(x_ptr + row * cols + offs, mask=mask, other=0.0)",
    )
    store = "tl.store(out_ptr + row, x)" if reduces else "tl.store(out_ptr + row * cols + offs, x, mask=mask)"
    return "x_ptr, out_ptr, cols", load, (store,)


def _tile() -> tuple[str, Lines, Lines]:
    load = (
        "row = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None]",
        "offs = tl.arange(0, BLOCK)",
        "x = tl.load(x_ptr + row * K + tl.arange(0, K))",
        "w = tl.load(w_ptr + tl.arange(0, K)[:, None] * BLOCK + offs)",
    )
    return "x_ptr, w_ptr, out_ptr, K: tl.constexpr", load, ("tl.store(out_ptr + row * BLOCK + offs, x)",)


def _launch(layout: Layout) -> Lines:
    if _multiplies(layout):
        return (
            "rows, cols = x.shape[0], w.shape[1]",
            "out = x.new_empty(rows, cols)",
            f"{layout.name}[(rows // 16,)](x, w, out, x.shape[1], BLOCK=cols)",
        )
    return (
        "rows, cols = x.shape",
        "out = x.new_empty(rows, 1)" if _reduces(layout) else "out = torch.empty_like(x)",
        f"{layout.name}[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))",
    )
