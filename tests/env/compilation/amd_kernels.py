# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels of several kinds for the targets that are named, and writes what comes of each as a line of JSON.

Run it as a process of its own: it makes Triton assume the targets.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import triton
import triton.language as tl

from verl_kernel.env.compilation import compiler
from verl_kernel.env.compilation.rebuilding import Tensor
from verl_kernel.env.compilation.targets import TARGETS

HALF, SINGLE = Tensor("float16", True), Tensor("float32", True)


@triton.jit
def product(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column, inner = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for step in range(0, n, K):
        left = tl.load(a + row * n + step + inner[None, :])
        right = tl.load(b + (step + inner)[:, None] * N + column)
        total = tl.dot(left, right, total)
    tl.store(c + row * N + column, total)


@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x + at) - tl.max(tl.load(x + at), 0))
    tl.store(out + at, e / tl.sum(e, 0))


def dot(*sizes: int, of: Tensor = HALF, **options: Any) -> Callable[[], Any]:
    names = dict(zip("MNK", sizes, strict=True))
    return lambda: product.warmup(of, of, SINGLE, 1024, **names, grid=(1,), **options)


KERNELS: dict[str, Callable[[], Any]] = {
    "copy": compiler.compile_trial_kernel,
    "rows": lambda: rows.warmup(SINGLE, SINGLE, 4096, BLOCK=4096, grid=(1,), num_warps=8),
    "rows of one warp": lambda: rows.warmup(SINGLE, SINGLE, 256, BLOCK=256, grid=(1,), num_warps=1),
    "half products": dot(64, 64, 32),
    "float32 products": dot(32, 32, 32, of=SINGLE),
    "large half products": dot(128, 128, 64, num_warps=8),
    "spilling products": dot(256, 256, 64, num_warps=4),
}
SLOW = "spilling products"
"""Compiled for the first target only: more registers than there are take LLVM seconds."""


def main() -> None:
    """Compile all for each target."""
    for number, target in enumerate(map(TARGETS.__getitem__, sys.argv[1:])):
        compiler.prepare(target)
        for function in (product, rows, compiler.copy_kernel):
            function.device_caches.clear()
        for name, make in KERNELS.items():
            if number and name == SLOW:
                continue
            made = make()
            used = target.resources(made.metadata._asdict(), made.asm["amdgcn"], "")
            texts = {"assembly": made.asm["amdgcn"], "object": base64.b64encode(made.asm["hsaco"]).decode()}
            found = {"target": target.name, "kernel": name, "used": asdict(used), "shared": made.metadata.shared}
            print(json.dumps({**found, **texts}))


if __name__ == "__main__":
    main()
