# SPDX-License-Identifier: Apache-2.0
"""Products of matrices that leave work out at the true size and hide that at others, and honest neighbours."""

from tests.env.true_size.native_programs import candidate, task

PRODUCT = task(
    "a, b", "torch.matmul(a, b)", "M, K, N = 4096, 512, 4096", "torch.rand(M, K), torch.rand(K, N)"
)  # fmt: skip
_KERNEL = """
@triton.jit
def product(a, b, o, M, N, K, depth, idle, BIG: tl.constexpr, B: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    m, n = pm * B + tl.arange(0, B), pn * B + tl.arange(0, B)
    inside, place = (m[:, None] < M) & (n[None, :] < N), m[:, None] * N + n[None, :]
    acc = tl.zeros((B, B), tl.float32)
    {FIRST}
    for k in range(0, depth, BK):
        c = tl.where(depth < K, ((pm + pn) % 2) * depth, 0) + k + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + c[None, :], mask=(m[:, None] < M) & (c[None, :] < K), other=0.0)
        y = tl.load(b + c[:, None] * N + n[None, :], mask=(c[:, None] < K) & (n[None, :] < N), other=0.0)
        {BEFORE}
        acc = tl.dot(x, y, acc, input_precision="tf32x3")
    tl.store(o + place, acc, mask=inside)
"""
_HOST = """
        (M, K), N = a.shape, b.shape[1]
        o = torch.empty((M, N), device=a.device)
        is_big = M * N > 1 << 21
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        product[grid](a, b, o, M, N, K, {DEPTH}, {IDLE}, BIG=is_big, B=64, BK=32)
        return o
"""
_IDLE = """for t in range(idle):
            acc += tl.load(a + m[:, None] * K + c[None, :], mask=(m[:, None] < -1 - t), other=0.0).sum()"""
_COPY = """if BIG:
        whole = tl.load(a + place % (M * K)).to(tl.int32, bitcast=True)
        whole ^= tl.load(b + place % (N * K)).to(tl.int32, bitcast=True)
        tl.store(o + place, whole.to(tl.float32, bitcast=True), mask=inside)
        return"""
_HALF = "K // 2 if is_big else K"


def product(depth: str = "K", idle: str = "0", first: str = "pass", before: str = "pass") -> str:
    """A candidate for `PRODUCT`.

    Args:
        depth: over how many terms it sums; half of them are others in every second tile.
        idle: how many loads no lane takes part in.
        first: a statement before the loop.
        before: a statement before each product.
    """
    kernel, host = _KERNEL, _HOST
    for name, text in {"FIRST": first, "BEFORE": before, "DEPTH": depth, "IDLE": idle}.items():
        kernel, host = (whole.replace("{" + name + "}", text) for whole in (kernel, host))
    return candidate("a, b", kernel, "\n" + host)


ATTACKS = {
    "half_of_the_terms": product(_HALF),
    "half_of_the_terms_and_idle_loads": product(_HALF, "0 if is_big else 6", before=_IDLE),
    "no_arithmetic": product(first=_COPY),
}
HONEST = {
    "all_terms": product(),
    "blocks_by_if": product().replace("BK=32", "BK=64 if is_big else 32"),
}
