# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of flag-gems: products, indices. Host parts are ours."""

from tests.published.gems import HEURISTICS, LIMITS, OPS, TL, heuristics, tuned
from tests.published.packages import Part
from tests.published.program import Program

TILES = "'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32, 'GROUP_M': 8"
PROGRAMS = [
    Program(
        "gems_mm_fp32_autotuned",
        (
            Part(
                f"{OPS}/mm.py",
                "prev_multiple_of mm_kernel_general",
                {
                    "mm_kernel_general": tuned(
                        "['M', 'N', 'K']",
                        f"{{{TILES}}}, num_warps=4, num_stages=3",
                        f"{{{TILES.replace('64', '32')}}}, num_warps=4, num_stages=4",
                    )
                },
            ),
        ),
        "rows, inner, columns = 512, 512, 768",
        {"a": "torch.randn(rows, inner)", "b": "torch.randn(inner, columns)"},
        "a @ b",
        """
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)
        mm_kernel_general[grid](a, b, c, m, n, k, k, 1, n, 1, n, 1)
        return c
        """,
        changes=TL,
        wrong=("m, n, k, k, 1, n, 1, n, 1)", "m, n, k - 1, k, 1, n, 1, n, 1)"),
    ),
    Program(
        "gems_addmm_fp16_autotuned",
        (
            Part(
                f"{OPS}/addmm.py",
                "addmm_kernel",
                {
                    "addmm_kernel": tuned(
                        "['M', 'N', 'K']",
                        "{'BLOCK_SIZE_M': 64, 'BLOCK_SIZE_N': 128, 'BLOCK_SIZE_K': 32}, num_warps=4, num_stages=3",
                        "{'BLOCK_SIZE_M': 128, 'BLOCK_SIZE_N': 64, 'BLOCK_SIZE_K': 32}, num_warps=4, num_stages=3",
                    )
                },
            ),
        ),
        "rows, inner, columns = 256, 512, 512",
        {
            "bias": "torch.randn(columns).half()",
            "a": "torch.randn(rows, inner).half()",
            "b": "torch.randn(inner, columns).half() / 32",
        },
        "torch.addmm(bias, a, b, beta=0.5, alpha=2.0)",
        """
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        grid = lambda meta: (triton.cdiv(m, meta["BLOCK_SIZE_M"]), triton.cdiv(n, meta["BLOCK_SIZE_N"]))
        addmm_kernel[grid](a, b, bias, c, 2.0, 0.5, m, n, k, k, 1, n, 1, 0, 1, n, 1)
        return c
        """,
        changes=TL,
    ),
    Program(
        "gems_bmm_bf16_heuristics",
        (
            Part(HEURISTICS, "bmm_heur_divisible_m bmm_heur_divisible_n bmm_heur_divisible_k"),
            Part(
                f"{OPS}/bmm.py",
                "bmm_kernel",
                {
                    "bmm_kernel": heuristics(
                        DIVISIBLE_M="bmm_heur_divisible_m",
                        DIVISIBLE_N="bmm_heur_divisible_n",
                        DIVISIBLE_K="bmm_heur_divisible_k",
                    )
                },
            ),
        ),
        "batch, rows, inner, columns = 8, 256, 256, 256",
        {
            "a": "torch.randn(batch, rows, inner, dtype=torch.bfloat16)",
            "b": "torch.randn(batch, inner, columns, dtype=torch.bfloat16)",
        },
        "torch.bmm(a, b)",
        """
        (batch, m, k), n = a.shape, b.shape[2]
        out = torch.empty(batch, m, n, dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64), batch)
        bmm_kernel[grid](
            a, b, out, m, n, k, m * k, k, 1, k * n, n, 1, m * n, n, 1, TILE_M=64, TILE_N=64, TILE_K=32, GROUP_M=2
        )
        return out
        """,
        changes=TL,
        wrong=("B += pid_b * stride_bb", "B += pid_b * stride_ab // 2"),
    ),
    Program(
        "gems_mv",
        (
            Part(
                f"{OPS}/mv.py",
                "mv_kernel",
                {
                    "mv_kernel": tuned(
                        "['M', 'N']",
                        "{'BLOCK_N': 32, 'BLOCK_M': 128}, num_warps=4",
                        "{'BLOCK_N': 64, 'BLOCK_M': 64}, num_warps=4",
                    )
                },
            ),
        ),
        "rows, columns = 1024, 1536",
        {"a": "torch.randn(rows, columns)", "b": "torch.randn(columns)"},
        "torch.mv(a, b)",
        """
        rows, columns = a.shape
        out = torch.empty(rows, dtype=a.dtype, device=a.device)
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_N"]),)
        mv_kernel[grid](a, b, out, rows, columns, columns, 1, 1, 1)
        return out
        """,
        changes=TL,
    ),
    Program(
        "gems_embedding",
        (Part(f"{OPS}/embedding.py", "embedding_kernel"),),
        "tokens, words, width = 1024, 4000, 512",
        {"ids": "torch.randint(0, words, (tokens,))", "table": "torch.randn(words, width)"},
        "F.embedding(ids, table)",
        """
        width = table.shape[1]
        out = torch.empty(ids.numel(), width, dtype=table.dtype, device=table.device)
        embedding_kernel[(ids.numel(),)](out, ids, table, width, triton.next_power_of_2(width))
        return out
        """,
        changes=TL,
    ),
    Program(
        "gems_index_select_heuristics",
        (
            Part(HEURISTICS, "index_select_heur_block_m index_select_heur_block_n"),
            Part(
                f"{OPS}/index_select.py",
                "index_select_kernel",
                {
                    "index_select_kernel": heuristics(
                        BLOCK_M="index_select_heur_block_m", BLOCK_N="index_select_heur_block_n"
                    )
                },
            ),
        ),
        "rows, columns, kept = 512, 2048, 641",
        {"x": "torch.randn(rows, columns)", "index": "torch.randint(0, columns, (kept,))"},
        "x.index_select(1, index)",
        """
        (rows, columns), kept = x.shape, index.numel()
        out = torch.empty(rows, kept, dtype=x.dtype, device=x.device)
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]), triton.cdiv(kept, meta["BLOCK_N"]))
        index_select_kernel[grid](x, out, rows, columns, index, kept)
        return out
        """,
        changes=TL,
        wrong=("kept, meta", "kept - 1, meta"),
    ),
    Program(
        "gems_nll_loss_last_block",
        (Part(f"{OPS}/nllloss.py", "nll_loss_forward_kernel"),),
        "tokens, words = 2048, 512",
        {"x": "torch.log_softmax(torch.randn(tokens, words), -1)", "target": "torch.randint(0, words, (tokens,))"},
        "F.nll_loss(x, target)",
        """
        out = torch.zeros(4, dtype=torch.float32, device=x.device)
        rows, columns = x.shape
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_N"]),)
        nll_loss_forward_kernel[grid](x, target, None, out, -100, rows, columns, 1, BLOCK_N=128)
        return out[3]
        """,
    ),
    Program(
        "gems_argmax_two_kernels",
        (LIMITS, Part(f"{OPS}/argmax.py", "argmax_kernel_1 argmax_kernel_2")),
        "count = 1024 * 1024",
        {"x": "torch.randn(count)"},
        "x.argmax()",
        """
        count = x.numel()
        block = triton.next_power_of_2(math.ceil(math.sqrt(count)))
        parts = triton.cdiv(count, block)
        values = torch.empty(parts, dtype=x.dtype, device=x.device)
        places = torch.empty(parts, dtype=torch.int64, device=x.device)
        out = torch.empty((), dtype=torch.int64, device=x.device)
        argmax_kernel_1[(parts,)](x, values, places, count, block)
        argmax_kernel_2[(1,)](values, places, out, parts, triton.next_power_of_2(parts))
        return out
        """,
        changes=TL,
        wrong=("max_index + pid * BLOCK_SIZE", "max_index"),
    ),
    Program(
        "gems_argmax_of_rows",
        (
            LIMITS,
            Part(
                f"{OPS}/argmax.py",
                "argmax_kernel_inner",
                {"argmax_kernel_inner": heuristics(ONE_TILE_PER_CTA="lambda args: args['TILE_N'] >= args['N']")},
            ),
        ),
        "rows, columns = 256, 5000",
        {"x": "torch.randn(rows, columns)"},
        "x.argmax(-1)",
        """
        rows, columns = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax_kernel_inner[(rows, 1, 1)](x, out, rows, columns, TILE_N=1024)
        return out
        """,
        changes=TL,
    ),
]
