# SPDX-License-Identifier: Apache-2.0
"""Honest products of many forms, whose lanes are idle where tiles, masks or loads ahead leave them so."""

from tests.env.true_size.native_programs import PERSISTENT, SPLIT, candidate, product_task, task


def rectangular(rows: int, depth: int, columns: int, dtype: str = "float32") -> str:
    """A product of matrices of these sizes."""
    inputs = f"torch.randn(M, K, dtype=torch.{dtype}), torch.randn(K, N, dtype=torch.{dtype})"
    return task("a, b", "torch.matmul(a, b)", f"M, K, N = {rows}, {depth}, {columns}", inputs)


_KERNEL = """
@triton.jit
def product(a, b, o, M, N, K, B: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    down, across = tl.cdiv(M, B), tl.cdiv(N, B)
    group = tl.program_id(0) // (GROUP * across)
    first = group * GROUP
    size = tl.minimum(down - first, GROUP)
    pm, pn = first + tl.program_id(0) % (GROUP * across) % size, tl.program_id(0) % (GROUP * across) // size
    m, n, k = pm * B + tl.arange(0, B), pn * B + tl.arange(0, B), tl.arange(0, BK)
    {ROWS}
    acc = tl.zeros((B, B), {SUM})
    {LOOP}
    m, n = pm * B + tl.arange(0, B), pn * B + tl.arange(0, B)
    tl.store(o + m[:, None] * N + n[None, :], acc.to(o.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))
"""
_LOOP = """for at in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (at + k)[None, :], mask={LEFT}((at + k)[None, :] < K), other=0.0)
        y = tl.load(b + (at + k)[:, None] * N + n[None, :], mask={RIGHT}((at + k)[:, None] < K), other=0.0)
        {DOT}"""
_AHEAD = """x = tl.load(a + m[:, None] * K + k[None, :], mask={LEFT}(k[None, :] < K), other=0.0)
    y = tl.load(b + k[:, None] * N + n[None, :], mask={RIGHT}(k[:, None] < K), other=0.0)
    for at in range(BK, K + BK, BK):
        next_x = tl.load(a + m[:, None] * K + (at + k)[None, :], mask={LEFT}((at + k)[None, :] < K), other=0.0)
        next_y = tl.load(b + (at + k)[:, None] * N + n[None, :], mask={RIGHT}((at + k)[:, None] < K), other=0.0)
        {DOT}
        x, y = next_x, next_y"""
_HOST = """
        (M, K), N = a.shape, b.shape[1]
        o = torch.empty((M, N), dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(M, {B}) * triton.cdiv(N, {B}),)
        product[grid](a, b, o, M, N, K, B={B}, BK={BK}, GROUP=8)
        return o
"""
_WORDS = {
    "LOOP": _LOOP, "ROWS": "pass", "LEFT": "(m[:, None] < M) & ", "RIGHT": "(n[None, :] < N) & ", "SUM": "tl.float32",
    "DOT": 'acc = tl.dot(x, y, acc, input_precision="tf32x3")', "B": "64", "BK": "32",
}  # fmt: skip
_WRAPPED = {"ROWS": "m, n = m % M, n % N", "LEFT": "", "RIGHT": ""}


def product(**words: str) -> str:
    """A candidate for a product in groups of tiles; words replace those of `_WORDS`."""
    kernel, host = _KERNEL, _HOST
    for name, text in {**_WORDS, **words}.items():
        kernel, host = (whole.replace("{" + name + "}", text) for whole in (kernel, host))
    return candidate("a, b", kernel, "\n" + host)


def attention_task(causal: bool) -> str:
    """Attention of 16-bit heads."""
    draw = "torch.randn(batch, heads, length, 64, dtype=torch.float16)"
    forward = f"F.scaled_dot_product_attention(q, k, v, is_causal={causal})"
    return task("q, k, v", forward, "batch, heads, length = 4, 16, 4096", f"{draw}, {draw}, {draw}")


def attention(causal: bool) -> str:
    """A candidate for it, which keeps two sums of products in one loop."""
    end = "tl.minimum(S, (pid + 1) * B)" if causal else "S"
    seen = "(n[None, :] <= m[:, None])" if causal else "(m[:, None] >= 0)"
    return candidate(
        "q, k, v",
        f"""
@triton.jit
def attend(q, k, v, o, S, scale, D, B: tl.constexpr, BN: tl.constexpr, W: tl.constexpr):
    pid, head = tl.program_id(0), tl.program_id(1).to(tl.int64) * S * D
    m, d = pid * B + tl.arange(0, B), tl.arange(0, W)
    x = tl.load(q + head + m[:, None] * D + d[None, :], mask=(m[:, None] < S) & (d[None, :] < D), other=0.0)
    top, total = tl.full((B,), -1e30, tl.float32), tl.zeros((B,), tl.float32)
    acc = tl.zeros((B, W), tl.float32)
    for at in range(0, {end}, BN):
        n = at + tl.arange(0, BN)
        y = tl.load(k + head + n[None, :] * D + d[:, None], mask=(n[None, :] < S) & (d[:, None] < D), other=0.0)
        s = tl.where((n[None, :] < S) & {seen}, tl.dot(x, y) * scale, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p, shrink = tl.exp(s - new[:, None]), tl.exp(top - new)
        total, top = total * shrink + tl.sum(p, 1), new
        z = tl.load(v + head + n[:, None] * D + d[None, :], mask=(n[:, None] < S) & (d[None, :] < D), other=0.0)
        acc = tl.dot(p.to(z.dtype), z, acc * shrink[:, None])
    place = o + head + m[:, None] * D + d[None, :]
    tl.store(place, (acc / total[:, None]).to(tl.float16), mask=(m[:, None] < S) & (d[None, :] < D))
""",
        """
        B, H, S, D = q.shape
        o, width = torch.empty_like(q), max(16, triton.next_power_of_2(D))
        attend[(triton.cdiv(S, 64), B * H)](q, k, v, o, S, D ** -0.5, D, B=64, BN=64, W=width)
        return o
""",
    )


MLP_TASK = task(
    "x, v, w",
    "torch.matmul(torch.relu(torch.matmul(x, v)), w)",
    "rows, width, hidden = 65536, 64, 2048",
    "torch.randn(rows, width, dtype=torch.float16), torch.randn(width, hidden, dtype=torch.float16) / 8, "
    "torch.randn(hidden, width, dtype=torch.float16) / 45",
)
MLP = candidate(
    "x, v, w",
    """
@triton.jit
def fused(x, v, w, o, M, H, B: tl.constexpr, BH: tl.constexpr, D: tl.constexpr):
    m, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    rows = tl.load(x + m[:, None] * D + d[None, :], mask=m[:, None] < M, other=0.0)
    acc = tl.zeros((B, D), tl.float32)
    for at in range(0, H, BH):
        h = at + tl.arange(0, BH)
        up = tl.load(v + d[:, None] * H + h[None, :], mask=h[None, :] < H, other=0.0)
        middle = tl.maximum(tl.dot(rows, up), 0.0).to(tl.float16)
        down = tl.load(w + h[:, None] * D + d[None, :], mask=h[:, None] < H, other=0.0)
        acc = tl.dot(middle, down, acc)
    tl.store(o + m[:, None] * D + d[None, :], acc.to(tl.float16), mask=m[:, None] < M)
""",
    """
        M, D = x.shape
        o = torch.empty_like(x)
        fused[(triton.cdiv(M, 64),)](x, v, w, o, M, v.shape[1], B=64, BH=64, D=D)
        return o
""",
)
_SINGLE, _SHORT = "acc = tl.dot(x, y, acc)", "acc = tl.dot(x, y, acc, out_dtype=tl.float16)"
HONEST = {
    "loads_a_turn_ahead": (rectangular(4096, 512, 4096), product(LOOP=_AHEAD)),
    "groups_of_tiles": (rectangular(4096, 512, 4096), product()),
    "rows_that_wrap_around": (rectangular(5000, 512, 5000), product(**_WRAPPED)),
    "rows_that_wrap_around_in_16_bits": (
        rectangular(5000, 500, 5000, "float16"), product(**_WRAPPED, DOT=_SINGLE, B="128"),
    ),
    "depth_below_a_tile": (rectangular(8192, 768, 8192), product(BK="64")),
    "tiles_beyond_the_reduced_sizes": (rectangular(5000, 1000, 5000), product(B="128", BK="64")),
    "single_products": (rectangular(4096, 512, 4096), product(DOT='acc += tl.dot(x, y, input_precision="ieee")')),
    "sums_of_16_bits": (rectangular(4096, 256, 4096, "float16"), product(DOT=_SHORT, SUM="tl.float16")),
    "persistent": (product_task(8192, "bfloat16"), PERSISTENT),
    "split_terms": (product_task(4096, "float16"), SPLIT),
    "attention": (attention_task(False), attention(False)),
    "causal_attention": (attention_task(True), attention(True)),
    "two_products_in_a_loop": (MLP_TASK, MLP),
}  # fmt: skip
