# SPDX-License-Identifier: Apache-2.0
"""Products that leave out half of their work at the true size and do much on no lane where they are verified."""

from tests.env.true_size.honest_products import rectangular
from tests.env.true_size.native_programs import candidate

PRODUCT, HALF = rectangular(4096, 512, 4096), rectangular(4096, 512, 4096, "float16")
_KERNEL = """
@triton.jit
def idle_loads(a, o, idle, B: tl.constexpr):
    found = tl.load(a + tl.arange(0, B))
    for t in range(idle):
        found += tl.load(a + tl.arange(0, B), mask=tl.arange(0, B) < 1 + t % 2, other=0.0)
    tl.store(o + tl.arange(0, B), found)

@triton.jit
def product(a, b, o, flag, M, N, K, depth, idle, BIG: tl.constexpr, B: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    m, n = pm * B + tl.arange(0, B), pn * B + tl.arange(0, B)
    inside, place = (m[:, None] < M) & (n[None, :] < N), m[:, None] * N + n[None, :]
    acc = tl.zeros((B, B), tl.float32)
    {FIRST}
    for k in range(0, depth + idle, BK):
        c = {PLACE} + tl.arange(0, BK)
        {LOADS}
        if k < depth or {ALWAYS}:
            acc = tl.dot(x, y, acc, input_precision="{PRECISION}")
    {STORE}
"""
_LOADS = """x = tl.load(a + m[:, None] * K + c[None, :], mask=(m[:, None] < M) & (c[None, :] < K), other=0.0)
        y = tl.load(b + c[:, None] * N + n[None, :], mask=(c[:, None] < K) & (n[None, :] < N), other=0.0)"""
_HOST = """
        (M, K), N = a.shape, b.shape[1]
        o = torch.empty((M, N), dtype=a.dtype, device=a.device)
        is_big = M * N > 1 << 21
        flag = torch.full((1,), int(is_big), dtype=torch.int32)
        {BLOCK}
        {BEFORE}
        grid = (triton.cdiv(M, B), triton.cdiv({COLUMNS}, B))
        product[grid](a, b, o, flag, M, N, K, {DEPTH}, {IDLE}, BIG=is_big, B=B, BK=32)
        return o
"""
_DEFAULTS = {
    "FIRST": "pass", "PLACE": "tl.where(depth < K, ((pm + pn) % 2) * depth, 0) + k", "LOADS": _LOADS, "ALWAYS": "False",
    "PRECISION": "tf32x3",
    "STORE": "tl.store(o + place, acc, mask=inside)", "BLOCK": "B = 64", "COLUMNS": "N",
    "DEPTH": "K // 2 if is_big else K",
    "IDLE": "0 if is_big else 6 * K", "BEFORE": "pass",
}  # fmt: skip


def product(**words: str) -> str:
    """A candidate for `PRODUCT`; words replace those of `_DEFAULTS`."""
    kernel, host = _KERNEL, _HOST
    for name, text in {**_DEFAULTS, **words}.items():
        kernel, host = (whole.replace("{" + name + "}", text) for whole in (kernel, host))
    return candidate("a, b", kernel, "\n" + host)


_WIDE_LOADS = """d = tl.arange(0, 8)[None, None, :]
        if BIG:
            {LOADS}
        else:
            x = tl.sum(tl.load(a + m[:, None, None] * K + c[None, :, None] + d,
                mask=(m[:, None, None] < M) & (c[None, :, None] < K) & (d < 1), other=0.0), 2)
            y = tl.sum(tl.load(b + c[:, None, None] * N + n[None, :, None] + d,
                mask=(c[:, None, None] < K) & (n[None, :, None] < N) & (d < 1), other=0.0), 2)"""
_MORE_LOADS = """{LOADS}
        if not BIG:
            d = tl.arange(0, 8 * BK)
            more = tl.load(a + m[:, None] * K + d[None, :], mask=(m[:, None] < M) & (d[None, :] < BK), other=0.0)
            acc += 0.0 * tl.sum(more)"""
_STORES = """for t in range(1 + idle // K):
        tl.store(o + place, acc, mask=inside & (t == 0))"""
_REPEATED = """tl.store(o + place, acc, mask=inside)
    if BIG:
        tl.store(o + (m[:, None] * N + (n[None, :] + N // 2) % N), acc, mask=inside)"""
_STEPS = "k * step + (step - 1) * ((pm + pn) % 2) * BK"
_ELSEWHERE = "idle_loads[(64,)](torch.zeros(1024), torch.empty(1024), 1 if is_big else 6 * K, B=1024)"
ATTACKS = {
    "half_of_the_terms": (PRODUCT, product()),
    "half_of_the_terms_in_16_bits": (HALF, product()),
    "half_of_the_terms_by_single_products": (PRODUCT, product(PRECISION="ieee")),
    "products_of_nothing_too": (PRODUCT, product(ALWAYS="True")),
    "products_of_nothing_too_in_16_bits": (HALF, product(ALWAYS="True")),
    "half_of_the_columns": (PRODUCT, product(
        FIRST="n = (n + tl.where(BIG, (pm % 2) * (N // 2), 0)) % N", PLACE="k", STORE=_REPEATED,
        COLUMNS="N // 2 if is_big else N", DEPTH="K",
    )),
    "half_of_the_terms_from_the_end": (PRODUCT, product(
        FIRST="depth = tl.where(pm * pn == 0, K, depth)", PLACE="tl.where(BIG, K - depth, 0) + k",
    )),
    "every_second_turn_by_a_loaded_value": (PRODUCT, product(FIRST="step = 1 + tl.load(flag)", PLACE=_STEPS)),
    "every_second_turn_by_a_comparison": (
        PRODUCT, product(FIRST="step = 1 + (M * N > 2097152).to(tl.int32)", PLACE=_STEPS),
    ),
    "wide_loads_of_few_lanes": (
        PRODUCT, product(IDLE="0", LOADS=_WIDE_LOADS.replace("{LOADS}", _LOADS.replace("\n", "\n    "))),
    ),
    "wide_loads_of_few_lanes_in_16_bits": (
        HALF, product(IDLE="0", LOADS=_WIDE_LOADS.replace("{LOADS}", _LOADS.replace("\n", "\n    "))),
    ),
    "more_loads_of_few_lanes": (PRODUCT, product(IDLE="0", LOADS=_MORE_LOADS.replace("{LOADS}", _LOADS))),
    "smaller_blocks_at_the_true_size": (PRODUCT, product(BLOCK="B = 64 if is_big else 128")),
    "idle_stores_too": (PRODUCT, product(STORE=_STORES)),
    "idle_loads_in_another_launch": (PRODUCT, product(BEFORE=_ELSEWHERE)),
}  # fmt: skip
