# SPDX-License-Identifier: Apache-2.0
"""Kernels without a fault in memory, and launches in which a careless check would find one."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from tests.env.devices.cpu.memory.faults import N, counter, given

HONEST: dict[str, Callable[[], torch.Tensor | None]] = {}
"""Launches by name; each returns a tensor that must hold what the name's torch equivalent gives, or nothing."""


def honest(launch: Callable[[], torch.Tensor | None]) -> Callable[[], torch.Tensor | None]:
    """Add a launch."""
    HONEST[launch.__name__] = launch
    return launch


@triton.jit
def mapped(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v * 2, mask=i < n)


@honest
def masked_tail():
    mapped[(3,)](given(), torch.empty(N), N, B=8)


@honest
def programs_without_a_lane():
    mapped[(9,)](given(), torch.empty(N), N, B=8)


@honest
def in_place():
    x = given()
    mapped[(3,)](x, x, N, B=8)


@honest
def types_of_all_widths():
    for dtype in (torch.float16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int64):
        mapped[(3,)](given().to(dtype), torch.empty(N, dtype=dtype), N, B=8)


@honest
def a_slice_of_a_tensor():
    whole = torch.empty(2 * N)
    mapped[(3,)](given(2 * N)[5:], whole[N:], N, B=8)


@honest
def result_used_by_a_second_launch():
    between = torch.empty(N)
    mapped[(3,)](given(), between, N, B=8)
    mapped[(3,)](between, torch.empty(N), N, B=8)
    mapped[(3,)](between, between, N, B=8)


@honest
def workspace_used_again_and_again():
    workspace = torch.empty(N)
    for size in (20, 7, 20):
        mapped[(3,)](given(), workspace, size, B=8)
        mapped[(3,)](workspace, torch.empty(N), size, B=8)


@honest
def filled_by_torch():
    for fill in (
        lambda t: t.fill_(1.0), lambda t: t.copy_(given()), lambda t: torch.add(given(), 1, out=t),
        lambda t: t.normal_(),
        lambda t: t.__setitem__(slice(None), 3.0), lambda t: torch.cat([given(8), given(12)], out=t),
        lambda t: t.index_copy_(0, torch.arange(N), given()), lambda t: t.scatter_(0, torch.arange(N), given()),
        lambda t: t.masked_fill_(torch.ones(N, dtype=torch.bool), 1.0), lambda t: t.uniform_().exp_(),
    ):  # fmt: skip
        between = torch.empty(N)
        fill(between)
        mapped[(3,)](between, torch.empty(N), N, B=8)


@honest
def made_by_torch():
    x = given().reshape(4, 5)
    for made in (
        torch.zeros(N), torch.full((N,), 2.0), torch.ones_like(x), torch.empty(N).clone(), x.t().contiguous(), x + 1,
        torch.stack([x, x]), torch.nn.functional.pad(x, (0, 3)), x.softmax(-1), torch.einsum("ij,kj->ik", x, x),
        torch.nn.functional.layer_norm(x, (5,)), torch.nn.functional.conv1d(x[None], torch.ones(4, 4, 2)), x.cumsum(0),
        torch.nn.functional.gelu(x), torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        torch.nn.functional.max_pool1d(x[None], 2), torch.fft.rfft(x).real.contiguous(), torch.linalg.inv(torch.eye(4)),
        torch.nn.functional.interpolate(x[None], 7), x.unfold(0, 2, 1).contiguous(), torch.tril(x), x.sort(-1).values,
        torch.nn.functional.batch_norm(x, None, None, training=True), torch.cdist(x, x), x.var(0), x @ x.t(),
        torch.nn.functional.embedding(torch.tensor([0, 2]), x), torch.outer(x[0], x[0]), x.to(torch.float64), x.roll(1),
        torch.nn.functional.group_norm(x[None], 2), torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2, 3])),
        torch.nn.functional.conv_transpose1d(x[None], torch.ones(4, 4, 2)),
        torch.nn.functional.adaptive_avg_pool1d(x, 2),
    ):  # fmt: skip
        mapped[(triton.cdiv(made.numel(), 8),)](made, torch.empty_like(made), made.numel(), B=8)


@honest
def memory_that_was_empty_before():
    for _ in range(20):
        torch.empty(N)
        mapped[(3,)](given(), torch.empty(N), N, B=8)


@triton.jit
def turned(x, o, M, K, xm, xk, om, ok, B: tl.constexpr):
    i, j = tl.program_id(0) * B + tl.arange(0, B)[:, None], tl.program_id(1) * B + tl.arange(0, B)[None, :]
    inside = (i < M) & (j < K)
    tl.store(o + i * om + j * ok, tl.load(x + i * xm + j * xk, mask=inside), mask=inside)


@honest
def strided_views():
    x = given(60).reshape(6, 10)
    for view in (x, x.t(), x[:, ::2], x[1:, 3:], x[2].expand(4, 10), x[::3].t()):
        out = torch.empty(view.shape[1], view.shape[0]).t()
        grid = triton.cdiv(view.shape[0], 4), triton.cdiv(view.shape[1], 4)
        turned[grid](view, out, *view.shape, *view.stride(), *out.stride(), B=4)


@triton.jit
def blocks(x, o, M: tl.constexpr, K: tl.constexpr, B: tl.constexpr):
    source = tl.make_block_ptr(x, (M, K), (K, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    target = tl.make_block_ptr(o, (M, K), (K, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    for _ in range(0, K, B):
        tl.store(target, tl.load(source, boundary_check=(0, 1), padding_option="zero"), boundary_check=(0, 1))
        source, target = tl.advance(source, (0, B)), tl.advance(target, (0, B))


@honest
def block_pointers_with_checks():
    blocks[(2,)](given(30), torch.empty(30), M=5, K=6, B=4)


@triton.jit
def described(x, o, M, K, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, K], [K, 1], [B, B])
    target = tl.make_tensor_descriptor(o, [M, K], [K, 1], [B, B])
    for start in range(0, K, B):
        target.store([tl.program_id(0) * B, start], source.load([tl.program_id(0) * B, start]) + 1)


@honest
def tensor_descriptors():
    described[(2,)](given(48), torch.empty(48), 6, 8, B=4)


@triton.jit
def product(a, b, c, M, K, W, A: tl.constexpr, B: tl.constexpr):
    i, j = tl.program_id(0) * A + tl.arange(0, A)[:, None], tl.program_id(1) * A + tl.arange(0, A)[None, :]
    total = tl.zeros((A, A), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        left = tl.load(a + i * K + k[None, :], mask=(i < M) & (k[None, :] < K), other=0.0)
        total += tl.dot(left, tl.load(b + k[:, None] * W + j, mask=(k[:, None] < K) & (j < W), other=0.0))
    tl.store(c + i * W + j, total, mask=(i < M) & (j < W))


@honest
def matrix_product():
    product[(2, 2)](given(15 * 9), given(9 * 12), torch.empty(15, 12), 15, 9, 12, A=8, B=4)


@triton.jit
def moved(x, index, o, n, B: tl.constexpr, GATHER: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    where = tl.load(index + c, mask=c < n, other=0)
    if GATHER:
        tl.store(o + c, tl.load(x + where, mask=(c < n) & (where >= 0), other=0.0), mask=c < n)
    else:
        tl.store(o + where, tl.load(x + c, mask=c < n), mask=c < n)


@honest
def gather_and_scatter():
    order = torch.arange(N).flip(0)
    moved[(3,)](given(), torch.where(order > 4, order, -1), torch.empty(N), N, B=8, GATHER=True)
    moved[(3,)](given(), order, torch.empty(N), N, B=8, GATHER=False)


@triton.jit
def of_either(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    source = tl.where(i < n // 2, x + i, y + i - n // 2)
    tl.store(o + i, tl.load(source, mask=i < n), mask=i < n)


@honest
def one_load_from_two_tensors():
    of_either[(3,)](given(10), given(10), torch.empty(N), N, B=8)


@triton.jit
def flagged(x, flag, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if tl.max(tl.load(x + i, mask=i < n, other=0.0), 0) > 3:
        tl.store(flag, 1)


@honest
def all_store_the_same():
    flagged[(3,)](given(), torch.empty(1, dtype=torch.int32), N, B=8)
    flagged[(3,)](given(), counter(), N, B=8)


@triton.jit
def unchanged(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + tl.arange(0, 4), tl.zeros((4,), tl.float32))
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)


@honest
def stores_that_change_nothing():
    unchanged[(3,)](torch.zeros(N), torch.empty(N), N, B=8)


@triton.jit
def repeated(x, scratch, o, B: tl.constexpr):
    c = tl.arange(0, B)
    tl.store(scratch + c, tl.load(x + c) * 2)
    tl.store(o + tl.program_id(0) * B + c, tl.load(scratch + c) + tl.program_id(0))


@honest
def each_stores_the_same_before_it_loads():
    repeated[(3,)](given(8), torch.empty(8), torch.empty(24), B=8)


@triton.jit
def persistent(x, o, n, B: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, B), tl.num_programs(0)):
        i = block * B + tl.arange(0, B)
        tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@honest
def persistent_programs():
    persistent[(2,)](given(50), torch.empty(50), 50, B=8)


@triton.jit
def three_axes(x, o, A, B, C: tl.constexpr):
    place = (tl.program_id(0) * A + tl.program_id(1)) * B + tl.program_id(2)
    tl.store(o + place * C + tl.arange(0, C), tl.load(x + place * C + tl.arange(0, C)))


@honest
def grid_of_three_axes():
    three_axes[(2, 3, 4)](given(96), torch.empty(96), 3, 4, C=4)


CONFIGURATIONS = [triton.Config({"B": size}) for size in (4, 8, 16)]


@triton.autotune(configs=CONFIGURATIONS, key=["n"])
@triton.jit
def tuned(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.autotune(configs=CONFIGURATIONS, key=["n"], reset_to_zero=["o"])
@triton.jit
def tuned_sum(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


@honest
def autotuned():
    between = torch.empty(N)
    tuned[lambda meta: (triton.cdiv(N, meta["B"]),)](given(), between, N)
    tuned_sum[lambda meta: (triton.cdiv(N, meta["B"]),)](between, torch.zeros(1), N)


@honest
def a_cache_that_grows():
    cache = torch.empty(4, 8)
    for length in range(4):
        mapped[(1,)](given(8), cache[length], 8, B=8)
        mapped[(4,)](cache, torch.empty(32), 8 * (length + 1), B=8)


@honest
def empty_tensors_and_grids():
    mapped[(1,)](torch.empty(0), torch.empty(0), 0, B=8)
    mapped[(0,)](torch.empty(N), torch.empty(N), N, B=8)
