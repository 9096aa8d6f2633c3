# SPDX-License-Identifier: Apache-2.0
"""Honest kernels without products, heavy in operations, whose rows are padded to a power of two."""

from tests.env.true_size.native_programs import candidate, task


def _rows(kernel: str, name: str) -> str:
    """A candidate that does each row of its input by one program."""
    return candidate(
        "x",
        kernel,
        f"""
        o = torch.empty_like(x)
        {name}[(x.shape[0],)](x, o, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
        return o
""",
    )


_DRAW = "rows, width = 65536, 5000"
GELU = """
@triton.jit
def gelu(x, o, n, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * n
    v = tl.load(x + row + c, mask=c < n, other=-float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, 0))
    v = v / tl.sum(v, 0)
    tl.store(o + row + c, (0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))).to(tl.float16), mask=c < n)
"""
SORT = """
@triton.jit
def in_order(x, o, n, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * n
    v = tl.load(x + row + c, mask=c < n, other=float("inf"))
    tl.store(o + row + c, tl.sort(v), mask=c < n)
"""
DISTANCES = """
@triton.jit
def distances(x, y, o, M, N, D, B: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for at in range(0, D, 16):
        d = at + tl.arange(0, 16)[None, :]
        one = tl.load(x + m[:, None] * D + d, mask=(m[:, None] < M) & (d < D), other=0.0)
        other = tl.load(y + n[:, None] * D + d, mask=(n[:, None] < N) & (d < D), other=0.0)
        apart = one[:, None, :] - other[None, :, :]
        acc += tl.sum(apart * apart, 2)
    tl.store(o + m[:, None] * N + n[None, :], tl.sqrt(acc), mask=(m[:, None] < M) & (n[None, :] < N))
"""
HONEST = {
    "softmax_and_gelu_of_rows": (
        task("x", "F.gelu(torch.softmax(x, 1))", _DRAW, "torch.randn(rows, width, dtype=torch.float16)"),
        _rows(GELU, "gelu"),
    ),
    "sorted_rows": (
        task("x", "torch.sort(x, 1)[0]", "rows, width = 65536, 3000", "torch.randn(rows, width)"),
        _rows(SORT, "in_order"),
    ),
    "distances": (
        task(
            "x, y", "torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')", "M, N, D = 5000, 5000, 512",
            "torch.randn(M, D), torch.randn(N, D)",
        ),
        candidate(
            "x, y",
            DISTANCES,
            """
        (M, D), N = x.shape, y.shape[0]
        o = torch.empty((M, N))
        distances[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, y, o, M, N, D, B=32)
        return o
""",
        ),
    ),
}  # fmt: skip
