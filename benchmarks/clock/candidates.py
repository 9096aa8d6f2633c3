# SPDX-License-Identifier: Apache-2.0
"""Triton kernels with published times, as programs that the gym judges at the sizes of the published times.

The times are facts in `triton_times.csv`. The kernels of liger-kernel come from the text of that package; those of
other sources are written here, after what their authors say of them: tiles, warps and what each program does.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.published.liger import PROGRAMS
from benchmarks.published.program import Program
from verl_kernel.bench.measured import MeasuredKernel
from verl_kernel.env import Task

TIMES = Path(__file__).with_name("triton_times.csv")
Sizes = Mapping[str, int | str]


@dataclass(frozen=True)
class PublishedTime:
    """One row of the table."""

    source: str
    gpu: str
    kernel: str
    sizes: Sizes
    ms: float
    is_host_floor: bool
    """Whether it is the time that Python needs, which no clock of a GPU tells."""

    @property
    def name(self) -> str:
        """Its kernel and sizes, in one word."""
        return f"{self.kernel}-{'x'.join(str(size) for size in self.sizes.values())}"


def read_times(path: Path = TIMES) -> list[PublishedTime]:
    """Return all rows of the table."""
    with path.open(newline="") as file:
        return [
            PublishedTime(
                row["source"], row["gpu"], row["kernel"], json.loads(row["sizes"]), float(row["published_ms"]),
                row["host_floor"] == "true",
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def measured_kernel(row: PublishedTime, folder: Path) -> MeasuredKernel:
    """Return a row's task and program, the kernel from the unpacked packages in a folder.

    Raises:
        KeyError: there is no program for the row's kernel.
    """
    program = PROGRAM_OF[row.kernel](row.sizes)
    task = Task(program.task(), task_id=row.name)
    return MeasuredKernel(task, row.name, program.candidate(folder), row.ms)


def _liger_layer_norm(sizes: Sizes) -> Program:
    return replace(PROGRAMS["liger_layer_norm"], sizes=f"batch, tokens, width = 1, {sizes['M']}, {sizes['N']}")


def _liger_rms_norm(sizes: Sizes) -> Program:
    """Megatron's norm: weight and rows in bfloat16, sums in float32 as Llama has them."""
    program = PROGRAMS["liger_rms_norm_llama_fp16"]
    return replace(
        program,
        sizes=f"tokens, width = {sizes['S']}, {sizes['H']}",
        inputs={"x": "torch.randn(tokens, width, dtype=torch.bfloat16)"},
        parameters={"weight": "torch.ones(width, dtype=torch.bfloat16)"},
        wrong=None,
    )


def _liger_embedding(sizes: Sizes) -> Program:
    program = PROGRAMS["liger_embedding_fp16"]
    host = program.host.replace("64", "128")  # tiles of 128 by 128, as the package launches them
    table = {"table": "torch.randn(words, width)", "ids": "torch.randint(0, words, (batch, tokens))"}
    chosen = f"batch, tokens, words, width = {sizes['B']}, {sizes['T']}, {sizes['V']}, {sizes['D']}"
    return replace(program, sizes=chosen, inputs=table, host=host, wrong=None)


def _half_layer_norm(sizes: Sizes) -> Program:
    """A program of four warps a row, which loads the whole row once."""
    return Program(
        (),
        f"rows, columns = {sizes['M']}, {sizes['N']}",
        {"x": "torch.randn(rows, columns, dtype=torch.float16)"},
        "F.layer_norm(x, (self.columns,), self.weight, self.bias)",
        """
        y = torch.empty_like(x)
        rows, columns = x.shape
        layer_norm[(rows,)](x, self.weight, self.bias, y, columns, 1e-5, triton.next_power_of_2(columns), num_warps=4)
        return y
        """,
        init="columns",
        parameters={
            "weight": "torch.ones(columns, dtype=torch.float16)", "bias": "torch.zeros(columns, dtype=torch.float16)",
        },
        before='''
        @triton.jit
        def layer_norm(x, weight, bias, y, columns, eps, BLOCK: tl.constexpr):
            row = tl.program_id(0).to(tl.int64) * columns
            column = tl.arange(0, BLOCK)
            inside = column < columns
            values = tl.load(x + row + column, mask=inside, other=0.0).to(tl.float32)
            mean = tl.sum(values, 0) / columns
            centred = tl.where(inside, values - mean, 0.0)
            scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + eps)
            factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
            shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
            tl.store(y + row + column, (centred * scale * factor + shift).to(tl.float16), mask=inside)
        ''',
    )  # fmt: skip


def _vector_add(sizes: Sizes) -> Program:
    shape = f"(batch, rows, columns), dtype=torch.{sizes['dtype']}"
    return Program(
        (),
        f"batch, rows, columns = {sizes['B']}, {sizes['M']}, {sizes['N']}",
        {"x y": f"torch.rand({shape})"},
        "x + y",
        """
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), 1024)
        return out
        """,
        before="""
        @triton.jit
        def add(x, y, out, count, BLOCK: tl.constexpr):
            index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
            inside = index < count
            tl.store(out + index, tl.load(x + index, mask=inside) + tl.load(y + index, mask=inside), mask=inside)
        """,
    )


def _batched_product(sizes: Sizes) -> Program:
    """Rows of all matrices of a batch times one matrix each; float32 factors are rounded to TF32, Triton's default.

    Of the seven configurations that its authors give, these fit into the shared memory of an H200.
    """
    dtype = sizes["dtype"]
    configs = {"float32": [(64, 64, 32, 4, 4)], "float16": [(128, 128, 64, 8, 4), (256, 128, 64, 8, 3)]}
    return Program(
        (),
        f"batch, rows, columns, depth = {sizes['B']}, {sizes['M']}, {sizes['N']}, {sizes['K']}",
        {
            "a": f"torch.randn(batch, rows, depth, dtype=torch.{dtype})",
            "b": f"torch.randn(batch, depth, columns, dtype=torch.{dtype})",
        },
        "torch.bmm(a, b)",
        """
        batch, rows, depth = a.shape
        columns = b.shape[2]
        out = torch.empty(batch, rows, columns, dtype=a.dtype, device=a.device)
        grid = lambda meta: (batch, triton.cdiv(rows, meta["ROWS"]), triton.cdiv(columns, meta["COLUMNS"]))
        product[grid](a, b, out, rows, columns, depth)
        return out
        """,
        before=f"""
        CONFIGS = {configs[str(dtype)]}
        """
        + """
        @triton.autotune(
            configs=[
                triton.Config({"ROWS": m, "COLUMNS": n, "DEPTH": k}, num_warps=warps, num_stages=stages)
                for m, n, k, warps, stages in CONFIGS
            ],
            key=["rows", "columns", "depth"],
        )
        @triton.jit
        def product(a, b, out, rows, columns, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
            batch = tl.program_id(0).to(tl.int64)
            row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
            column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
            inner = tl.arange(0, DEPTH)
            left = a + batch * rows * depth + row[:, None] * depth + inner[None, :]
            right = b + batch * depth * columns + inner[:, None] * columns + column[None, :]
            total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
            for start in range(0, depth, DEPTH):
                within = start + inner < depth
                x = tl.load(left, mask=(row < rows)[:, None] & within[None, :], other=0.0)
                y = tl.load(right, mask=within[:, None] & (column < columns)[None, :], other=0.0)
                total = tl.dot(x, y, total)
                left += DEPTH
                right += DEPTH * columns
            place = out + batch * rows * columns + row[:, None] * columns + column[None, :]
            tl.store(place, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (column < columns)[None, :])
        """,
    )


def _attention(sizes: Sizes) -> Program:
    """Causal attention in float16 with an online softmax; each program has a tile of queries."""
    return Program(
        (),
        f"batch, heads, tokens, width = {sizes['Z']}, {sizes['H']}, {sizes['N']}, {sizes['D']}",
        {"q k v": "torch.randn(batch, heads, tokens, width, dtype=torch.float16)"},
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        """
        out = torch.empty_like(q)
        batch, heads, tokens, width = q.shape
        grid = lambda meta: (triton.cdiv(tokens, meta["ROWS"]), batch * heads)
        attend[grid](q, k, v, out, tokens, 1.4426950408889634 * width ** -0.5, WIDTH=width)
        return out
        """,
        before="""
        @triton.autotune(
            configs=[
                triton.Config({"ROWS": 128, "COLUMNS": 64}, num_warps=4, num_stages=3),
                triton.Config({"ROWS": 128, "COLUMNS": 32}, num_warps=4, num_stages=4),
                triton.Config({"ROWS": 128, "COLUMNS": 64}, num_warps=8, num_stages=3),
                triton.Config({"ROWS": 64, "COLUMNS": 64}, num_warps=4, num_stages=3),
            ],
            key=["tokens"],
        )
        @triton.jit
        def attend(q, k, v, out, tokens, scale, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
            tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64) * tokens * WIDTH
            row, inner, step = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, COLUMNS)
            place = head + row[:, None] * WIDTH + inner[None, :]
            queries = tl.load(q + place, mask=(row < tokens)[:, None], other=0.0)
            total = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
            largest, norm = tl.full((ROWS,), float("-inf"), dtype=tl.float32), tl.zeros((ROWS,), dtype=tl.float32)
            for start in range(0, tile * ROWS, COLUMNS):  # below the diagonal
                column = start + step
                keys = tl.load(k + head + column[None, :] * WIDTH + inner[:, None])
                scores = tl.dot(queries, keys) * scale
                above = tl.maximum(largest, tl.max(scores, 1))
                weights, shrunk = tl.exp2(scores - above[:, None]), tl.exp2(largest - above)
                values = tl.load(v + head + column[:, None] * WIDTH + inner[None, :])
                total = tl.dot(weights.to(tl.float16), values, total * shrunk[:, None])
                norm, largest = norm * shrunk + tl.sum(weights, 1), above
            for start in range(tile * ROWS, tl.minimum((tile + 1) * ROWS, tokens), COLUMNS):  # on the diagonal
                column = start + step
                inside = (column < tokens)[None, :]
                keys = tl.load(k + head + column[None, :] * WIDTH + inner[:, None], mask=inside, other=0.0)
                scores = tl.dot(queries, keys) * scale
                scores = tl.where(row[:, None] >= column[None, :], scores, float("-inf"))
                above = tl.maximum(largest, tl.max(scores, 1))
                weights, shrunk = tl.exp2(scores - above[:, None]), tl.exp2(largest - above)
                inside = (column < tokens)[:, None]
                values = tl.load(v + head + column[:, None] * WIDTH + inner[None, :], mask=inside, other=0.0)
                total = tl.dot(weights.to(tl.float16), values, total * shrunk[:, None])
                norm, largest = norm * shrunk + tl.sum(weights, 1), above
            tl.store(out + place, (total / norm[:, None]).to(tl.float16), mask=(row < tokens)[:, None])
        """,
    )


PROGRAM_OF: Mapping[str, Callable[[Sizes], Program]] = {
    "layer_norm": _liger_layer_norm,
    "rms_norm": _liger_rms_norm,
    "embedding": _liger_embedding,
    "half_layer_norm": _half_layer_norm,
    "vector_add": _vector_add,
    "batched_product": _batched_product,
    "attention": _attention,
}
"""By kernel, the program of given sizes."""
