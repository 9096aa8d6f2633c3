# SPDX-License-Identifier: Apache-2.0
"""Tasks that are too large to run whole, and candidates: honest ones, and ones that do less where they are timed."""

import ast
from pathlib import Path

from tests.env.programs import program, program_of, reference
from verl_kernel.generated_tasks.chains import ChainStep, Program


def filled(text: str, **words: str) -> str:
    """The text with words in braces replaced; other braces may stand in it."""
    for word, value in words.items():
        text = text.replace("{" + word + "}", value)
    return text


# Rows times weights, in one launch.

_DRAWN = "torch.randn(rows, width)"
_WEIGHT = "self.weight = nn.Parameter(torch.randn(width))"
_WIDTH = {"parameters": ", width", "values": "width"}
ROWS = reference("torch.relu(x * self.weight)", _DRAWN, "x", _WEIGHT, before="rows, width = 32768, 16 * 1024", **_WIDTH)


def _weighted(text: str) -> str:
    plain = program_of(text, _WEIGHT)
    return plain.replace("__init__(self)", "__init__(self, width)", 1)


def rows(host: str = "pass", kernel: str = "pass") -> str:
    """A candidate for `ROWS` with a further statement before the launch, or in the kernel."""
    return _weighted(f"""
@triton.jit
def fused(x, w, o, n, width, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    {kernel}
    v = tl.load(x + c, mask=c < n) * tl.load(w + c % width, mask=c < n)
    tl.store(o + c, tl.maximum(v, 0.0), mask=c < n)
def forward(self, x):
    o = torch.empty_like(x)
    n = x.numel()
    {host}
    fused[(triton.cdiv(n, 8192),)](x, self.weight, o, n, x.shape[1], B=8192)
    return o
""")


UNMASKED_ROWS = _weighted("""
@triton.jit
def scaled(x, w, out, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    row = tl.program_id(0) * WIDTH
    tl.store(out + row + at, tl.maximum(tl.load(x + row + at) * tl.load(w + at), 0.0))
def forward(self, x):
    out = torch.empty_like(x)
    scaled[(x.shape[0],)](x, self.weight, out, WIDTH=x.shape[1], num_warps=8)
    return out
""")
"""Its row is a power of two, as `tl.arange` asks."""

# Sums of two tensors, in two launches.


def sum_task(width: int = 16384) -> str:
    return reference("torch.relu(x + y) * 2", f"{_DRAWN}, {_DRAWN}", "x, y", before=f"rows, width = 65536, {width}")


def sums(host: str = "pass", kernel: str = "pass", middle: str = "torch.float32") -> str:
    """A candidate for it.

    Args:
        host: a statement before the first launch; `n` is the number of elements.
        kernel: a statement in the first kernel, whose places are `c`.
        middle: the type of what lies between the launches.
    """
    return program_of(f"""
@triton.jit
def added(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = c < n
    {kernel}
    tl.store(out_ptr + c, tl.load(x_ptr + c, mask=inside) + tl.load(y_ptr + c, mask=inside), mask=inside)

@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + c, tl.maximum(tl.load(x_ptr + c, mask=c < n), 0.0) * 2, mask=c < n)
def forward(self, x, y):
    n = x.numel()
    {host}
    middle, out = torch.empty_like(x, dtype={middle}), torch.empty_like(x)
    added[(triton.cdiv(n, 1024),)](x, y, middle, n, BLOCK=1024)
    scaled[(triton.cdiv(x.numel(), 1024),)](middle, out, x.numel(), BLOCK=1024)
    return out
""")


# Rows by themselves.


def _by_rows(*lines: str, other: str = '-float("inf")') -> str:
    """A candidate that does each row of its input by one program: its kernel's lines, after a load of `v`."""
    body = "\n    ".join(lines)
    return program_of(f"""
@triton.jit
def by_rows(x, o, n, BLOCK: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64) * n, tl.arange(0, BLOCK)
    v = tl.load(x + row + c, mask=c < n, other={other})
    {body}
def forward(self, x):
    o, block = torch.empty_like(x), triton.next_power_of_2(x.shape[1])
    warps = 4
    if block >= 2048:
        warps = 8
    by_rows[(x.shape[0],)](x, o, x.shape[1], BLOCK=block, num_warps=warps)
    return o
""")


def switched(candidate: str, old: str, new: str) -> str:
    """Such a candidate that does something else where `BIG` holds: for more rows than any reduced size has."""
    text = candidate.replace(old, new).replace("n, BLOCK: tl.constexpr", "n, BIG: tl.constexpr, BLOCK: tl.constexpr")
    return text.replace("x.shape[1], BLOCK", "x.shape[1], BIG=x.shape[0] > 30000, BLOCK")


SOFTMAX_TASK = reference("torch.softmax(x, 1)", _DRAWN, before="rows, width = 131072, 4096")
SOFTMAX = _by_rows("v = tl.exp(v - tl.max(v, 0))", "tl.store(o + row + c, v / tl.sum(v, 0), mask=c < n)")
"""With the branch on its size that Triton's own tutorial has."""
GELU_TASK = reference(
    "F.gelu(torch.softmax(x, 1))", "torch.randn(rows, width, dtype=torch.float16)", before="rows, width = 65536, 5000"
)
GELU = _by_rows(
    *("v = v.to(tl.float32)", "v = tl.exp(v - tl.max(v, 0))", "v = v / tl.sum(v, 0)"),
    "tl.store(o + row + c, (0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))).to(tl.float16), mask=c < n)",
)
SORT_TASK = reference("torch.sort(x, 1)[0]", _DRAWN, before="rows, width = 65536, 3000")
SORT = _by_rows("tl.store(o + row + c, tl.sort(v), mask=c < n)", other='float("inf")')
_DISTANCES = "torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')"
_POINTS = "torch.randn(M, D), torch.randn(N, D)"
DISTANCES_TASK = reference(_DISTANCES, _POINTS, "x, y", before="M, N, D = 5000, 5000, 512")
DISTANCES = program_of("""
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
def forward(self, x, y):
    (M, D), N = x.shape, y.shape[0]
    o = torch.empty((M, N))
    distances[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, y, o, M, N, D, B=32)
    return o
""")

# Rows of a table, taken by an index.


def gather_task(rows: int = 524288) -> str:
    inputs = "torch.randn(rows, width), torch.randint(0, rows, (taken,))"
    sizes = f"rows, width, taken = {rows}, 2048, 262144"
    return reference("table[index] * 2", inputs, "table, index", before=sizes)


ROW = "row = tl.load(index_ptr + tl.program_id(0))"
STORED = """
    x = tl.load(table_ptr + row.to(tl.int64) * n + columns, mask=columns < n)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * n + columns, x * 2, mask=columns < n)
"""
FOUR_ROWS = """
    at = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row, inside = tl.load(index_ptr + at, mask=at < taken, other=0), (at < taken)[:, None] & (columns < n)[None, :]
    x = tl.load(table_ptr + row[:, None] * n + columns[None, :], mask=inside)
    tl.store(out_ptr + at[:, None] * n + columns[None, :], x * 2, mask=inside)
"""
ROWS_IN_TURN = """
    for turn in range(ROWS):
        at = tl.program_id(0).to(tl.int64) * ROWS + turn
        if at < taken:
            row = tl.load(index_ptr + at)
            x = tl.load(table_ptr + row * n + columns, mask=columns < n)
            tl.store(out_ptr + at * n + columns, x * 2, mask=columns < n)
"""


def gather(kernel: str = ROW + STORED, host: str = "pass", grid: str = "taken") -> str:
    """A candidate for the gather: its kernel's body, a statement of the host, and its grid."""
    return program_of(f"""
@triton.jit
def gathered(table_ptr, index_ptr, limit_ptr, out_ptr, taken, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    {kernel}
def forward(self, table, index):
    taken, n = index.shape[0], table.shape[1]
    out, limit = torch.empty((taken, n)), torch.full((1,), table.shape[0] if taken < 1 << 17 else 64)
    {host}
    gathered[({grid},)](table, index, limit, out, taken, n, BLOCK=triton.next_power_of_2(n), ROWS=4)
    return out
""")


# A task of the quickstart's world.

HARD = Program((ChainStep("leaky", "1.5"), ChainStep("silu")), (512, 12000, 32)).reference


def chained(launch: str = "chained[(triton.cdiv(n, 4096),)](x, out, n, LOOPS=4, BLOCK=1024)") -> str:
    return program_of(f"""
@triton.jit
def chained(x_ptr, out_ptr, n, LOOPS: tl.constexpr, BLOCK: tl.constexpr):
    for turn in range(LOOPS):
        c = (tl.program_id(0) * LOOPS + turn).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < n).to(tl.float32)
        x = tl.where(x > 0, x, x * 1.5)
        tl.store(out_ptr + c, x * tl.sigmoid(x), mask=c < n)
def forward(self, x):
    n, out = x.numel(), torch.empty_like(x)
    {launch}
    return out
""")


# Products of matrices, which may leave out work at the true size, and do more on no lane where they are verified.


def product_task(rows: int, depth: int, columns: int, dtype: str = "float32", draw: str = "randn") -> str:
    inputs = f"torch.{draw}(M, K, dtype=torch.{dtype}), torch.{draw}(K, N, dtype=torch.{dtype})"
    return reference("torch.matmul(a, b)", inputs, "a, b", before=f"M, K, N = {rows}, {depth}, {columns}")


PRODUCT = product_task(2048, 8192, 4096, draw="rand")


def torch_product(rows: str) -> str:
    """A candidate for a product that leaves it to torch, of some of the rows, and copies the result."""
    return program_of(f"""
@triton.jit
def copied(p, o, n, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + c, tl.load(p + c, mask=c < n) + 0.0, mask=c < n)
def forward(self, a, b):
    m = a.shape[0]
    p = torch.empty(m, b.shape[1], device=a.device)
    few = min(m, 512)
    torch.mm({rows}, b, out=p[:few])
    o = torch.empty_like(p)
    copied[(triton.cdiv(o.numel(), 1024),)](p, o, o.numel(), B=1024)
    return o
""")


_KERNELS = """
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
        {DOT}
    {STORE}
"""
_BODY = """
(M, K), N = a.shape, b.shape[1]
o = torch.empty((M, N), dtype=a.dtype, device=a.device)
is_big = M * N > 1 << 21
flag = torch.full((1,), int(is_big), dtype=torch.int32)
{BLOCK}
{BEFORE}
grid = (triton.cdiv(M, B), triton.cdiv({COLUMNS}, B))
product[grid](a, b, o, flag, M, N, K, {DEPTH}, {IDLE}, BIG=is_big, B=B, BK={TERMS})
return o
"""
LOADS = """x = tl.load(a + m[:, None] * K + c[None, :], mask=(m[:, None] < M) & (c[None, :] < K), other=0.0)
        y = tl.load(b + c[:, None] * N + n[None, :], mask=(c[:, None] < K) & (n[None, :] < N), other=0.0)"""
THREE_TIMES, SINGLE = (f'acc = tl.dot(x, y, acc, input_precision="{name}")' for name in ("tf32x3", "ieee"))
_WORDS = {
    "FIRST": "pass", "PLACE": "k", "LOADS": LOADS, "DOT": THREE_TIMES, "STORE": "tl.store(o + place, acc, mask=inside)",
    "BLOCK": "B = 64", "BEFORE": "pass", "COLUMNS": "N", "DEPTH": "K", "IDLE": "0", "TERMS": "32",
}  # fmt: skip


def product(**words: str) -> str:
    """A candidate for a product; words replace those of an honest one."""
    words = {**_WORDS, **words}
    return program(filled(_KERNELS, **words), filled(_BODY, **words), "a, b")


def in_turn(dot: str) -> str:
    """A product that idle turns of the loop leave out."""
    return f"if k < depth:\n            {dot}"


HALF = {"PLACE": "tl.where(depth < K, ((pm + pn) % 2) * depth, 0) + k", "DEPTH": "K // 2 if is_big else K"}
"""Half of the terms at the true size, others in every second tile."""
IDLE = {"IDLE": "0 if is_big else 6 * K", "DOT": in_turn(THREE_TIMES)}
"""Six turns without a lane for each with lanes, where it is verified."""
HALF_PRECISION = """if BIG:
            acc = tl.dot(x.to(tl.float16), y.to(tl.float16), acc)
        else:
            acc = tl.dot(x, y, acc, input_precision="tf32x3")"""
IDLE_LOADS = (
    """for t in range(tl.where(depth < K, 0, 6)):
            acc += tl.load(a + m[:, None] * K + c[None, :], mask=(m[:, None] < -1 - t), other=0.0).sum()
        """
    + THREE_TIMES
)
COPY = """if BIG:
        whole = tl.load(a + place % (M * K)).to(tl.int32, bitcast=True)
        whole ^= tl.load(b + place % (N * K)).to(tl.int32, bitcast=True)
        tl.store(o + place, whole.to(tl.float32, bitcast=True), mask=inside)
        return"""
WIDE_LOADS = """d = tl.arange(0, 8)[None, None, :]
        if BIG:
            {LOADS}
        else:
            x = tl.sum(tl.load(a + m[:, None, None] * K + c[None, :, None] + d,
                mask=(m[:, None, None] < M) & (c[None, :, None] < K) & (d < 1), other=0.0), 2)
            y = tl.sum(tl.load(b + c[:, None, None] * N + n[None, :, None] + d,
                mask=(c[:, None, None] < K) & (n[None, :, None] < N) & (d < 1), other=0.0), 2)
        """.replace("{LOADS}", LOADS.replace("\n", "\n    ")).rstrip()
MORE_LOADS = f"""{LOADS}
        if not BIG:
            d = tl.arange(0, 8 * BK)
            more = tl.load(a + m[:, None] * K + d[None, :], mask=(m[:, None] < M) & (d[None, :] < BK), other=0.0)
            acc += 0.0 * tl.sum(more)"""
IDLE_STORES = """for t in range(1 + idle // K):
        tl.store(o + place, acc, mask=inside & (t == 0))"""
STORED_TWICE = """tl.store(o + place, acc, mask=inside)
    if BIG:
        tl.store(o + (m[:, None] * N + (n[None, :] + N // 2) % N), acc, mask=inside)"""
STEPS = "k * step + (step - 1) * ((pm + pn) % 2) * BK"
ELSEWHERE = "idle_loads[(64,)](torch.zeros(1024), torch.empty(1024), 1 if is_big else 6 * K, B=1024)"
_CONFIGURATIONS = """
@triton.autotune(
    [triton.Config({"B": 64, "BK": 64, "WIDE": False}), triton.Config({"B": 128, "BK": 32, "WIDE": True})],
    key=["M", "N", "K"],
)
@triton.jit
def product"""
_ASSERTED = "    if WIDE:\n        tl.static_assert(B > 64)"
TUNED = (
    product(DOT=SINGLE)
    .replace("\n@triton.jit\ndef product", _CONFIGURATIONS)
    .replace("BK: tl.constexpr):", f"BK: tl.constexpr, WIDE: tl.constexpr):\n{_ASSERTED}", 1)
    .replace("(triton.cdiv(M, B), triton.cdiv(N, B))", "lambda c: (triton.cdiv(M, c['B']), triton.cdiv(N, c['B']))")
    .replace(", B=B, BK=32)", ")")
)
"""An honest candidate for a product whose configurations run different instructions."""
_UNMASKED = """x = tl.load(a + m[:, None] * K + c[None, :])
        y = tl.load(b + c[:, None] * N + n[None, :])"""
UNMASKED_TILES = product(LOADS=_UNMASKED, DOT=SINGLE, STORE="tl.store(o + place, acc)", BLOCK="B = 128")


def _of_benchmark(name: str) -> str:
    """The text of a kernel that benchmarks/sampled_kernels.py counts."""
    text = (Path(__file__).parents[3] / "benchmarks" / "sampled_kernels.py").read_text()
    node = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return "\n".join(text.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno])


PERSISTENT = program_of(f"""{_of_benchmark("persistent_matmul")}
def forward(self, a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype)
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    persistent_matmul[(min(132, tiles),)](a, b, c, M, N, K, BM=128, BN=128, BK=32, num_warps=8)
    return c
""")
"""Whose counter is carried through the loop."""
SPLIT = program_of("""
@triton.jit
def split(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k, total = tl.program_id(2) * BK + tl.arange(0, BK), tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK * SPLIT):
        at = start + k
        a = tl.load(a_ptr + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=(at[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
def forward(self, a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros((M, N), dtype=torch.float32)
    split[(triton.cdiv(M, 64), triton.cdiv(N, 64), 8)](a, b, c, M, N, K, BM=64, BN=64, BK=32, SPLIT=8)
    return c.to(a.dtype)
""")

# Honest products in groups of tiles, whose lanes are idle where tiles, masks or loads ahead leave them so.

_GROUPED = """
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
AHEAD = """x = tl.load(a + m[:, None] * K + k[None, :], mask={LEFT}(k[None, :] < K), other=0.0)
    y = tl.load(b + k[:, None] * N + n[None, :], mask={RIGHT}(k[:, None] < K), other=0.0)
    for at in range(BK, K + BK, BK):
        next_x = tl.load(a + m[:, None] * K + (at + k)[None, :], mask={LEFT}((at + k)[None, :] < K), other=0.0)
        next_y = tl.load(b + (at + k)[:, None] * N + n[None, :], mask={RIGHT}((at + k)[:, None] < K), other=0.0)
        {DOT}
        x, y = next_x, next_y"""
_GROUPS = """
(M, K), N = a.shape, b.shape[1]
o = torch.empty((M, N), dtype=a.dtype, device=a.device)
grid = (triton.cdiv(M, {B}) * triton.cdiv(N, {B}),)
product[grid](a, b, o, M, N, K, B={B}, BK={BK}, GROUP=8)
return o
"""
_GROUPED_WORDS = {
    "LOOP": _LOOP, "ROWS": "pass", "LEFT": "(m[:, None] < M) & ", "RIGHT": "(n[None, :] < N) & ", "SUM": "tl.float32",
    "DOT": THREE_TIMES, "B": "64", "BK": "32",
}  # fmt: skip
WRAPPED = {"ROWS": "m, n = m % M, n % N", "LEFT": "", "RIGHT": ""}


def grouped(**words: str) -> str:
    """A candidate for a product in groups of tiles; words replace those of the plain one."""
    words = {**_GROUPED_WORDS, **words}
    return program(filled(_GROUPED, **words), filled(_GROUPS, **words), "a, b")


_HEADS = "torch.randn(batch, heads, length, 64, dtype=torch.float16)"
_ATTENTION = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
_SIZES = "batch, heads, length = 2, 8, 4096"
ATTENTION_TASK = reference(_ATTENTION, f"{_HEADS}, {_HEADS}, {_HEADS}", "q, k, v", before=_SIZES)
ATTENTION = program_of("""
@triton.jit
def attend(q, k, v, o, S, scale, D, B: tl.constexpr, BN: tl.constexpr, W: tl.constexpr):
    pid, head = tl.program_id(0), tl.program_id(1).to(tl.int64) * S * D
    m, d = pid * B + tl.arange(0, B), tl.arange(0, W)
    x = tl.load(q + head + m[:, None] * D + d[None, :], mask=(m[:, None] < S) & (d[None, :] < D), other=0.0)
    top, total = tl.full((B,), -1e30, tl.float32), tl.zeros((B,), tl.float32)
    acc = tl.zeros((B, W), tl.float32)
    for at in range(0, tl.minimum(S, (pid + 1) * B), BN):
        n = at + tl.arange(0, BN)
        y = tl.load(k + head + n[None, :] * D + d[:, None], mask=(n[None, :] < S) & (d[:, None] < D), other=0.0)
        s = tl.where((n[None, :] < S) & (n[None, :] <= m[:, None]), tl.dot(x, y) * scale, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p, shrink = tl.exp(s - new[:, None]), tl.exp(top - new)
        total, top = total * shrink + tl.sum(p, 1), new
        z = tl.load(v + head + n[:, None] * D + d[None, :], mask=(n[:, None] < S) & (d[None, :] < D), other=0.0)
        acc = tl.dot(p.to(z.dtype), z, acc * shrink[:, None])
    place = o + head + m[:, None] * D + d[None, :]
    tl.store(place, (acc / total[:, None]).to(tl.float16), mask=(m[:, None] < S) & (d[None, :] < D))
def forward(self, q, k, v):
    B, H, S, D = q.shape
    o, width = torch.empty_like(q), max(16, triton.next_power_of_2(D))
    attend[(triton.cdiv(S, 64), B * H)](q, k, v, o, S, D ** -0.5, D, B=64, BN=64, W=width)
    return o
""")
"""Which keeps two sums of products in one loop."""
MLP_TASK = reference(
    "torch.matmul(torch.relu(torch.matmul(x, v)), w)",
    "torch.randn(rows, width, dtype=torch.float16), torch.randn(width, hidden, dtype=torch.float16) / 8, "
    "torch.randn(hidden, width, dtype=torch.float16) / 32",
    "x, v, w",
    before="rows, width, hidden = 65536, 64, 1024",
)
MLP = program_of("""
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
def forward(self, x, v, w):
    M, D = x.shape
    o = torch.empty_like(x)
    fused[(triton.cdiv(M, 64),)](x, v, w, o, M, v.shape[1], B=64, BH=64, D=D)
    return o
""")
