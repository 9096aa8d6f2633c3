# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of flag-gems: attention, convolutions, products, moves, atomics. Host parts are ours."""

from tests.published.gems import LIMITS, OPS, ROWS, TL, heuristics, tuned
from tests.published.gems_norms import FUSED
from tests.published.packages import Part
from tests.published.program import Program

PROGRAMS = [
    Program(
        "gems_attention_fp16_autotuned",
        (
            Part(
                f"{OPS}/attention.py",
                "_attn_fwd_inner _attn_fwd",
                {
                    "_attn_fwd": tuned(
                        "['KV_CTX', 'HEAD_DIM']",
                        "{'BLOCK_M': 64, 'BLOCK_N': 32, 'PRE_LOAD_V': 0}, num_warps=4, num_stages=2",
                        "{'BLOCK_M': 128, 'BLOCK_N': 64, 'PRE_LOAD_V': 0}, num_warps=8, num_stages=2",
                    )
                },
            ),
        ),
        "batch, heads, tokens, width = 2, 16, 2048, 64",
        {key: "torch.randn(batch, heads, tokens, width).half()" for key in "qkv"},
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        """
        (batch, heads, tokens, width), o = q.shape, torch.empty_like(q)
        most = torch.empty(batch, heads, tokens, device=q.device)
        grid = lambda meta: (triton.cdiv(tokens, meta["BLOCK_M"]), batch * heads, 1)
        _attn_fwd[grid](
            q, k, v, None, width**-0.5, most, o, *q.stride(), *k.stride(), *v.stride(), 1, 1, 1, 1, *o.stride(), batch,
            heads, heads, 1, tokens, tokens, width, STAGE=3, HAS_ATTN_MASK=False,
        )
        return o
        """,
        wrong=("mask = offs_m[:, None] >= (start_n", "mask = offs_m[:, None] > (start_n"),
    ),
    Program(
        "gems_conv2d",
        (
            Part(
                f"{OPS}/conv2d.py",
                "conv2d_forward_kernel",
                {
                    "conv2d_forward_kernel": tuned(
                        "['in_n', 'out_c']",
                        "{'BLOCK_NI_HO_WO': 64, 'BLOCK_CI': 32, 'BLOCK_CO': 64}, num_warps=4, num_stages=3",
                        "{'BLOCK_NI_HO_WO': 128, 'BLOCK_CI': 32, 'BLOCK_CO': 64}, num_warps=8, num_stages=3",
                    )
                },
            ),
        ),
        "batch, channels, height, outputs = 4, 64, 56, 128",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.conv2d(x, self.weight, self.bias, padding=1)",
        """
        (batch, channels, height, width), outputs = x.shape, self.weight.shape[0]
        y = torch.empty(batch, outputs, height, width, dtype=x.dtype, device=x.device)
        count = batch * height * width
        grid = lambda meta: (triton.cdiv(count, meta["BLOCK_NI_HO_WO"]), triton.cdiv(outputs, meta["BLOCK_CO"]), 1)
        conv2d_forward_kernel[grid](
            x, self.weight, y, self.bias, batch, height, width, outputs, height, width, *x.stride(),
            *self.weight.stride(), *y.stride(), channels, 3, 3, 1, 1, 1, 1, 1, 1, groups=1,
        )
        return y
        """,
        init={"channels": "channels", "outputs": "outputs"},
        parameters={
            "weight": "torch.randn(outputs, channels, 3, 3) / 24",
            "bias": "torch.randn(outputs)",
        },
        wrong=("accum += bias", "accum -= bias"),
    ),
    Program(
        "gems_baddbmm_fp16",
        (
            Part(
                f"{OPS}/baddbmm.py",
                "baddbmm_kernel",
                {
                    "baddbmm_kernel": heuristics(
                        DIVISIBLE_M="lambda args: args['M'] % args['TILE_M'] == 0",
                        DIVISIBLE_N="lambda args: args['N'] % args['TILE_N'] == 0",
                        DIVISIBLE_K="lambda args: args['K'] % args['TILE_K'] == 0",
                    )
                },
            ),
        ),
        "batch, rows, inner, columns = 32, 512, 256, 512",
        {
            "c": "torch.randn(batch, rows, columns).half()",
            "a": "torch.randn(batch, rows, inner).half()",
            "b": "(torch.randn(batch, inner, columns) / 16).half()",
        },
        "torch.baddbmm(c, a, b, beta=0.5, alpha=2.0)",
        """
        (batch, m, k), n = a.shape, b.shape[2]
        out = torch.empty_like(c)
        baddbmm_kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64), batch)](
            a, b, out, c, 2.0, 0.5, m, n, k, TILE_M=64, TILE_N=64, TILE_K=32, GROUP_M=4, bias_batch_stride=c.stride(0),
            bias_M_stride=c.stride(1), bias_N_stride=c.stride(2),
        )
        return out
        """,
        changes=TL,
        wrong=("accumulator * alpha + bi * beta", "accumulator * alpha + bi"),
    ),
    Program(
        "gems_max_pool2d_autotuned",
        (
            LIMITS,
            Part(
                f"{OPS}/max_pool2d_with_indices.py",
                "max_pool2d_forward_kernel",
                {
                    "max_pool2d_forward_kernel": tuned(
                        "['out_h', 'out_w']",
                        "{'BLOCK_H': 16, 'BLOCK_W': 16}, num_warps=4",
                        "{'BLOCK_H': 32, 'BLOCK_W': 32}, num_warps=8",
                    )
                },
            ),
        ),
        "batch, channels, height = 16, 64, 112",
        {"x": "torch.randn(batch, channels, height, height)"},
        "list(F.max_pool2d(x, 3, 2, 1, return_indices=True))",
        """
        batch, channels, height, width = x.shape
        high, wide = (height - 1) // 2 + 1, (width - 1) // 2 + 1
        out = torch.empty(batch, channels, high, wide, dtype=x.dtype, device=x.device)
        places = torch.empty(batch, channels, high, wide, dtype=torch.int64, device=x.device)
        grid = lambda meta: (batch * channels, triton.cdiv(high, meta["BLOCK_H"]) * triton.cdiv(wide, meta["BLOCK_W"]))
        max_pool2d_forward_kernel[grid](
            x, out, places, *x.stride(), channels, height, width, high, wide, 3, 3, 2, 2, 1, 1, 1, 1
        )
        return [out, places]
        """,
        wrong=("current_idx = h_in * in_w + w_in", "current_idx = h_in * in_h + w_in + 1"),
    ),
    Program(
        "gems_cat_bf16",
        (Part(f"{OPS}/cat.py", "cat_copy_func_kernel_4"),),
        "rows, width = 4096, 1024",
        {
            key: f"torch.randn(rows, width{size}, dtype=torch.bfloat16)"
            for key, size in {"a": "", "b": " * 2", "c": " // 2"}.items()
        },
        "torch.cat((a, b, c), 1)",
        """
        parts = [a, b, c, c[:0]]
        widths = [a.shape[1], b.shape[1], c.shape[1], 1]
        starts = [0, widths[0], widths[0] + widths[1], 0]
        out = torch.empty(a.shape[0], sum(widths[:3]), dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(max(x.numel() for x in parts), 1024), 3)
        counts = [x.numel() for x in parts]
        cat_copy_func_kernel_4[grid](out, *parts, *widths, out.shape[1], 1, *starts, *counts, BLOCK_X=1024)
        return out
        """,
        wrong=("(dim_idx + dim_offset) * dim_prod_post", "(dim_idx + dim_offset // 2) * dim_prod_post"),
    ),
    Program(
        "gems_roll",
        (Part(f"{OPS}/roll.py", "roll_kernel _roll_single_dim"),),
        "batch, rows, columns = 8, 1024, 1000",
        {"x": "torch.randn(batch, rows, columns)"},
        "torch.roll(x, 300, 1)",
        "_roll_single_dim(x, 300, 1)",
        wrong=("_roll_single_dim(x, 300, 1)", "_roll_single_dim(x, 301, 1)"),
    ),
    Program(
        "gems_moe_sum_fp16",
        (Part(f"{FUSED}/moe_sum.py", "moe_sum_kernel"),),
        "tokens, experts, width = 4096, 8, 2048",
        {"x": "torch.randn(tokens, experts, width).half()"},
        "x.sum(1)",
        """
        (tokens, experts, width), out = x.shape, torch.empty_like(x[:, 0])
        grid = lambda meta: (tokens, triton.cdiv(width, meta["BLOCK_SIZE"]))
        moe_sum_kernel[grid](x, out, tokens, experts, width, *x.stride(), *out.stride())
        return out
        """,
        wrong=("in range(topk)", "in range(1, topk)"),
    ),
    Program(
        "gems_topk_softmax",
        (Part(f"{FUSED}/topk_softmax.py", "topk_gating_softmax_kernel"),),
        "tokens, experts = 32768, 128",
        {"x": "torch.randn(tokens, experts)"},
        "torch.topk(torch.softmax(x, -1), 8).values",
        """
        tokens, experts = x.shape
        weights = torch.empty(tokens, 8, device=x.device)
        places = torch.empty(tokens, 8, dtype=torch.int64, device=x.device)
        rows = torch.empty(tokens, 8, dtype=torch.int32, device=x.device)
        block = triton.next_power_of_2(experts)
        topk_gating_softmax_kernel[(triton.cdiv(tokens, 8),)](
            x, None, weights, places, rows, tokens, 8, experts, 0, experts, renormalize=False, INDEX_TY=tl.int64,
            BLOCK_SIZE_ROWS=8, BLOCK_SIZE_EXPERTS=block, num_warps=4,
        )
        return weights
        """,
        wrong=('-float("inf"), probs', "0.001, probs"),
    ),
    Program(
        "gems_embedding_backward",
        (Part(f"{OPS}/embedding_dense_backward.py", "_embedding_dense_backward_kernel"),),
        "tokens, words, width = 4096, 8000, 512",
        {"d": "torch.randn(tokens, width)", "ids": "torch.randint(0, words, (tokens,))"},
        "torch.ops.aten.embedding_dense_backward(d, ids, self.words, -1, False)",
        """
        out = torch.zeros(self.words, d.shape[1], device=d.device)
        grid = (ids.numel(), triton.cdiv(d.shape[1], 128))
        _embedding_dense_backward_kernel[grid](d, ids, out, self.words, -1, BLOCK_D=128, EMBED_DIM=d.shape[1])
        return out
        """,
        init={"words": "words"},
        wrong=("self.words, -1, BLOCK_D", "self.words - 1, -1, BLOCK_D"),
    ),
    Program(
        "gems_reflection_pad2d",
        (Part(f"{OPS}/reflection_pad2d.py", "reflection_pad2d_kernel"),),
        "batch, channels, height = 8, 64, 128",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.pad(x, (3, 3, 3, 3), mode='reflect')",
        """
        batch, channels, height, width = x.shape
        out = torch.empty(batch, channels, height + 6, width + 6, dtype=x.dtype, device=x.device)
        grid = (batch * channels, triton.cdiv((height + 6) * (width + 6), 1024))
        reflection_pad2d_kernel[grid](
            x, out, batch * channels, height, width, 3, 3, height + 6, width + 6, BLOCK_HW=1024
        )
        return out
        """,
        wrong=("pW = 2 * Wm1", "pW = 2 * Wm1 + 1"),
    ),
    Program(
        "gems_amax_bf16",
        (LIMITS, Part(f"{OPS}/amax.py", "amax_kernel", {"amax_kernel": ROWS})),
        "rows, columns = 4096, 8192",
        {"x": "torch.randn(rows, columns, dtype=torch.bfloat16)"},
        "x.amax(-1)",
        """
        (rows, columns), out = x.shape, torch.empty_like(x[:, 0])
        amax_kernel[lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]),)](x, out, rows, columns)
        return out
        """,
        changes=TL,
        wrong=("_all = tl.maximum(_all, a)", "_all = a"),
    ),
]
