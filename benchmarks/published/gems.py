# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of flag-gems: norms, products, reductions, order, images, moves. Host parts are ours."""

from benchmarks.published.packages import Part, heuristics, tuned
from benchmarks.published.program import Program

OPS, FUSED = "flag_gems/ops", "flag_gems/fused"
LIMITS = Part("flag_gems/utils/limits.py", "get_dtype_max get_dtype_min")
HEURISTICS = "flag_gems/runtime/backend/_nvidia/heuristics_config_utils.py"
ROWS = tuned("M N", "BLOCK_M BLOCK_N num_warps", (4, 1024, 8), (8, 1024, 8), (16, 512, 8), (4, 256, 4))
WARPS = tuned("M N", "num_warps", (4,), (8,))
TILES = tuned("M N", "TILE_N num_warps", (1024, 4), (2048, 8))
BLOCKS = tuned("M N", "BLOCK_ROW_SIZE BLOCK_COL_SIZE num_warps", (1, 2048, 8), (4, 1024, 8))
AFFINE = {"weight": "torch.ones(width)", "bias": "torch.zeros(width)"}
STATISTICS = "torch.empty(rows, dtype=torch.float32, device=x.device)"
EXTREMES = "_MIN_FLOAT32_VAL _MAX_FLOAT32_VAL _MIN_FLOAT16_VAL _MAX_FLOAT16_VAL _MIN_BFLOAT16_VAL _MAX_BFLOAT16_VAL"
SORTED = (("core.", "tl."), ("zeros_like(", "tl.zeros_like("))
LOG2 = """
@triton.constexpr_function
def _log2(number):
    return number.bit_length() - 1
"""

PROGRAMS = {
    "gems_rms_norm_fp16": Program(
        Part(f"{OPS}/rms_norm.py", "rms_norm_kernel"),
        "tokens, width = 512, 4096",
        {"x": "torch.randn(tokens, width, dtype=torch.float16)"},
        "(x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight.float()).half()",
        """
        rows, columns = x.shape
        y, inverse = torch.empty_like(x), torch.empty(rows, dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(columns)
        rms_norm_kernel[(rows,)](y, inverse, x, self.weight, columns, 1, columns, 1, columns, 1e-5, block)
        return y
        """,
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
    ),
    "gems_group_norm": Program(
        Part(f"{OPS}/groupnorm.py", "group_norm_kernel"),
        "batch, channels, height = 4, 256, 32",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.group_norm(x, 32, self.weight, self.bias, 1e-5)",
        """
        batch, channels, height, width = x.shape
        y, each, area = torch.empty_like(x), channels // 32, height * width
        mean, rstd = [torch.empty(batch, 32, device=x.device) for _ in range(2)]
        group_norm_kernel[(batch * 32,)](
            x, y, self.weight, self.bias, mean, rstd, each, channels, area, 32, 1e-5,
            BLOCK_GROUP_SIZE=triton.next_power_of_2(each), BLOCK_HW_SIZE=triton.next_power_of_2(area),
        )
        return y
        """,
        parameters={"weight": "torch.ones(channels)", "bias": "torch.zeros(channels)"},
        before="from triton.language.extra.libdevice import rsqrt\n",
    ),
    "gems_mean_autotuned": Program(
        Part(f"{OPS}/mean.py", "mean_dim_kernel"),
        "rows, columns = 512, 4096",
        {"x": "torch.randn(rows, columns)"},
        "x.mean(-1)",
        """
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        mean_dim_kernel[lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]),)](x, out, rows, columns)
        return out
        """,
        decorator=ROWS,
        wrong=("mean = summed / N", "mean = summed / (N - 1)"),
    ),
    "gems_var_mean_autotuned": Program(
        Part(f"{OPS}/var_mean.py", "welford_func var_mean_welford_kernel"),
        "rows, columns = 512, 4096",
        {"x": "torch.randn(rows, columns)"},
        "list(torch.var_mean(x, -1))",
        """
        rows, columns = x.shape
        var, mean = [torch.empty(rows, dtype=x.dtype, device=x.device) for _ in range(2)]
        var_mean_welford_kernel[lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]),)](x, var, mean, rows, columns, 1)
        return [var, mean]
        """,
        decorator=ROWS,
    ),
    "gems_vector_norm": Program(
        Part(f"{OPS}/vector_norm.py", "l2_norm_kernel_1 l2_norm_kernel_2"),
        "count = 4 * 1024 * 1024",
        {"x": "torch.randn(count)"},
        "torch.linalg.vector_norm(x)",
        """
        count = x.numel()
        block = triton.next_power_of_2(math.ceil(math.sqrt(count)))
        parts = triton.cdiv(count, block)
        middle, out = torch.empty(parts, device=x.device), torch.empty((), device=x.device)
        l2_norm_kernel_1[(parts,)](x, middle, count, block)
        l2_norm_kernel_2[(1,)](middle, out, parts, triton.next_power_of_2(parts))
        return out
        """,
    ),
    "gems_cumsum": Program(
        Part(f"{OPS}/cumsum.py", "scan_part_sum_kernel add_base_sum_kernel"),
        "count = 1024 * 1024",
        {"x": "torch.randn(count)"},
        "x.cumsum(0)",
        """
        out, count = torch.empty_like(x), x.numel()
        parts = triton.cdiv(count, 1024)
        sums = torch.empty(parts, device=x.device)
        scan_part_sum_kernel[(parts,)](x, out, sums, count, parts, 1024)
        if parts > 1:
            sums = sums.cumsum(0)
            add_base_sum_kernel[(parts,)](out, sums, count, parts, 1024)
        return out
        """,
        wrong=("partial_sum + pid - 1", "partial_sum + pid"),
    ),
    "gems_softmax_heuristics": Program(
        (
            Part(HEURISTICS, "softmax_heur_one_tile_per_cta softmax_heur_tile_n_inner softmax_heur_num_warps_inner"),
            Part(f"{OPS}/softmax.py", "next_multiple_of prev_multiple_of softmax_kernel_inner"),
        ),
        "rows, columns = 32, 50257",
        {"x": "torch.randn(rows, columns)"},
        "torch.softmax(x, -1)",
        """
        out = torch.empty_like(x)
        softmax_kernel_inner[(x.shape[0], 1, 1)](out, x, x.shape[0], x.shape[1])
        return out
        """,
        decorator=heuristics(
            TILE_N="softmax_heur_tile_n_inner",
            ONE_TILE_PER_CTA="softmax_heur_one_tile_per_cta",
            num_warps="softmax_heur_num_warps_inner",
        ),
    ),
    "gems_softmax_of_columns": Program(
        Part(f"{OPS}/softmax.py", "next_multiple_of prev_multiple_of softmax_kernel_non_inner"),
        "batch, rows, columns = 8, 512, 256",
        {"x": "torch.randn(batch, rows, columns)"},
        "torch.softmax(x, 1)",
        """
        out, (batch, rows, columns) = torch.empty_like(x), x.shape
        grid = lambda meta: (batch, triton.cdiv(columns, meta["TILE_K"]), 1)
        softmax_kernel_non_inner[grid](out, x, batch, rows, columns)
        return out
        """,
        decorator=heuristics(
            TILE_K="lambda args: min(64, triton.next_power_of_2(args['K']))",
            TILE_N="lambda args: triton.cdiv(8192, args['TILE_K'])",
            ONE_TILE_PER_CTA="lambda args: args['TILE_N'] >= args['N']",
        ),
    ),
    "gems_log_softmax": Program(
        Part(f"{OPS}/log_softmax.py", "log_softmax_kernel"),
        "rows, columns = 256, 8000",
        {"x": "torch.randn(rows, columns)"},
        "torch.log_softmax(x, -1)",
        """
        out, (rows, columns) = torch.empty_like(x), x.shape
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]), 1)
        log_softmax_kernel[grid](out, x, rows, columns, 1, num_warps=8)
        return out
        """,
    ),
    "gems_mm_fp32_autotuned": Program(
        Part(f"{OPS}/mm.py", "prev_multiple_of mm_kernel_general"),
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
        decorator=tuned(
            "M N K",
            "BLOCK_M BLOCK_N BLOCK_K GROUP_M num_warps num_stages",
            (64, 64, 32, 8, 4, 3),
            (32, 32, 32, 8, 4, 4),
        ),
        wrong=("m, n, k, k, 1, n, 1, n, 1)", "m, n, k - 1, k, 1, n, 1, n, 1)"),
    ),
    "gems_addmm_fp16_autotuned": Program(
        Part(f"{OPS}/addmm.py", "addmm_kernel"),
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
        decorator=tuned(
            "M N K",
            "BLOCK_SIZE_M BLOCK_SIZE_N BLOCK_SIZE_K num_warps num_stages",
            (64, 128, 32, 4, 3),
            (128, 64, 32, 4, 3),
        ),
    ),
    "gems_bmm_bf16_heuristics": Program(
        (
            Part(HEURISTICS, "bmm_heur_divisible_m bmm_heur_divisible_n bmm_heur_divisible_k"),
            Part(f"{OPS}/bmm.py", "bmm_kernel"),
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
        decorator=heuristics(
            DIVISIBLE_M="bmm_heur_divisible_m", DIVISIBLE_N="bmm_heur_divisible_n", DIVISIBLE_K="bmm_heur_divisible_k"
        ),
        wrong=("B += pid_b * stride_bb", "B += pid_b * stride_ab // 2"),
    ),
    "gems_mv": Program(
        Part(f"{OPS}/mv.py", "mv_kernel"),
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
        decorator=tuned("M N", "BLOCK_N BLOCK_M num_warps", (32, 128, 4), (64, 64, 4)),
    ),
    "gems_embedding": Program(
        Part(f"{OPS}/embedding.py", "embedding_kernel"),
        "tokens, words, width = 1024, 4000, 512",
        {"ids": "torch.randint(0, words, (tokens,))", "table": "torch.randn(words, width)"},
        "F.embedding(ids, table)",
        """
        width = table.shape[1]
        out = torch.empty(ids.numel(), width, dtype=table.dtype, device=table.device)
        embedding_kernel[(ids.numel(),)](out, ids, table, width, triton.next_power_of_2(width))
        return out
        """,
    ),
    "gems_index_select_heuristics": Program(
        (
            Part(HEURISTICS, "index_select_heur_block_m index_select_heur_block_n"),
            Part(f"{OPS}/index_select.py", "index_select_kernel"),
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
        decorator=heuristics(BLOCK_M="index_select_heur_block_m", BLOCK_N="index_select_heur_block_n"),
        wrong=("kept, meta", "kept - 1, meta"),
    ),
    "gems_nll_loss_last_block": Program(
        Part(f"{OPS}/nllloss.py", "nll_loss_forward_kernel"),
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
    "gems_argmax_two_kernels": Program(
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
        wrong=("max_index + pid * BLOCK_SIZE", "max_index"),
    ),
    "gems_argmax_of_rows": Program(
        (LIMITS, Part(f"{OPS}/argmax.py", "argmax_kernel_inner")),
        "rows, columns = 256, 5000",
        {"x": "torch.randn(rows, columns)"},
        "x.argmax(-1)",
        """
        rows, columns = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax_kernel_inner[(rows, 1, 1)](x, out, rows, columns, TILE_N=1024)
        return out
        """,
        decorator=heuristics(ONE_TILE_PER_CTA="lambda args: args['TILE_N'] >= args['N']"),
    ),
    "gems_topk": Program(
        Part(
            f"{OPS}/topk.py",
            f"{EXTREMES} "
            "_MIN_INT32_VAL _MAX_INT32_VAL _get_finfo_val topk_stage1_kernel _compare_and_swap "
            "_bitonic_merge argsort topk_stage2_kernel",
        ),
        "rows, columns = 256, 4096",
        {"x": "torch.randn(rows, columns)"},
        "list(torch.topk(x, 8))",
        """
        (rows, columns), k = x.shape, 8
        chunks = triton.cdiv(columns, 1024)
        first = torch.empty(rows * chunks * k, dtype=x.dtype, device=x.device)
        first_places = torch.empty(rows * chunks * k, dtype=torch.int64, device=x.device)
        out = torch.empty(rows, k, dtype=x.dtype, device=x.device)
        places = torch.empty(rows, k, dtype=torch.int64, device=x.device)
        topk_stage1_kernel[(rows, chunks)](first, first_places, x, k, columns, 1024, True)
        block = triton.next_power_of_2(chunks * k)
        topk_stage2_kernel[(rows,)](out, places, first, first_places, 1, k, chunks * k, block, True)
        return [out, places]
        """,
        before=LOG2,
        changes=SORTED,
    ),
    "gems_sort_of_rows": Program(
        (
            Part(f"{OPS}/topk.py", f"{EXTREMES} _get_finfo_val _compare_and_swap _bitonic_merge argsort"),
            Part(f"{OPS}/sort.py", "sort_kernel"),
        ),
        "rows, columns = 512, 512",
        {"x": "torch.randn(rows, columns)"},
        "torch.sort(x, -1).values",
        """
        out, (rows, columns) = torch.empty_like(x), x.shape
        places = torch.empty(rows, columns, dtype=torch.int64, device=x.device)
        sort_kernel[(rows,)](x, out, places, columns, triton.next_power_of_2(columns), False, True)
        return out
        """,
        before=LOG2 + "\n@triton.jit\ndef _get_iinfo_val(dtype, return_max):\n    return 0\n",
        changes=SORTED,
    ),
    "gems_group_quant_fp8": Program(
        Part(f"{OPS}/per_token_group_quant_fp8.py", "_per_token_group_quant_fp8"),
        "tokens, width = 512, 2048",
        {"x": "torch.randn(tokens, width)"},
        """
        groups = x.reshape(x.shape[0], -1, 128)
        scale = groups.abs().amax(-1).clamp(min=1e-10) / 448.0
        kept = (groups / scale[..., None]).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        return [kept.reshape(x.shape).float(), scale]
        """,
        """
        tokens, width = x.shape
        out = torch.empty_like(x, dtype=torch.float8_e4m3fn)
        scale = torch.empty(tokens, width // 128, dtype=torch.float32, device=x.device)
        _per_token_group_quant_fp8[(tokens * width // 128,)](
            x, out, scale, 128, width, width, 1e-10, fp8_min=-448.0, fp8_max=448.0, scale_ue8m0=False, BLOCK=128,
            num_warps=1, num_stages=1,
        )
        return [out.float(), scale]
        """,
    ),
    "gems_block_fp8_matmul": Program(
        Part(f"{OPS}/w8a8_block_fp8_matmul.py", "w8a8_block_fp8_matmul_kernel"),
        "rows, inner, columns = 256, 512, 512",
        {
            "a": "torch.randn(rows, inner).to(torch.float8_e4m3fn)",
            "b": "torch.randn(columns, inner).to(torch.float8_e4m3fn)",
            "scale_a": "torch.rand(rows, inner // 128) + 0.5",
            "scale_b": "torch.rand(columns // 128, inner // 128) + 0.5",
        },
        """
        a = a.float() * scale_a.repeat_interleave(128, 1)
        b = b.float() * scale_b.repeat_interleave(128, 0).repeat_interleave(128, 1)
        return (a @ b.T).bfloat16()
        """,
        """
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
        w8a8_block_fp8_matmul_kernel[(triton.cdiv(m, 64) * triton.cdiv(n, 128),)](
            a, b, c, scale_a, scale_b, m, n, k, 128, 128, k, 1, 1, k, n, 1, *scale_a.stride(), scale_b.stride(1),
            scale_b.stride(0), BLOCK_SIZE_M=64, BLOCK_SIZE_N=128, BLOCK_SIZE_K=128, GROUP_SIZE_M=32, num_warps=4,
            num_stages=2,
        )
        return c
        """,
    ),
    "gems_avg_pool2d_autotuned": Program(
        Part(f"{OPS}/avg_pool2d.py", "avg_pool2d_forward_kernel"),
        "batch, channels, height = 4, 32, 64",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.avg_pool2d(x, 3, 2, 1)",
        """
        batch, channels, height, width = x.shape
        high, wide = (height - 1) // 2 + 1, (width - 1) // 2 + 1
        out = torch.empty(batch, channels, high, wide, dtype=x.dtype, device=x.device)
        grid = lambda meta: (batch * channels, triton.cdiv(high, meta["BLOCK_H"]) * triton.cdiv(wide, meta["BLOCK_W"]))
        avg_pool2d_forward_kernel[grid](
            x, out, *x.stride(), channels, height, width, high, wide, 3, 3, 2, 2, 1, 1, 1, 1, COUNT_INCLUDE_PAD=True,
            divisor_override=0.0,
        )
        return out
        """,
        wrong=("2, 2, 1, 1, 1, 1, COUNT", "2, 2, 1, 0, 1, 1, COUNT"),
    ),
    "gems_upsample_nearest2d": Program(
        Part(f"{OPS}/upsample_nearest2d.py", "upsample_nearest2d_kernel"),
        "batch, channels, height = 4, 16, 64",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.interpolate(x, scale_factor=2, mode='nearest')",
        """
        batch, channels, height, width = x.shape
        out = torch.empty(batch, channels, 2 * height, 2 * width, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(4 * height * width, 1024), triton.cdiv(batch * channels, 4))
        upsample_nearest2d_kernel[grid](
            out, x, batch, channels, 2 * height, 2 * width, height, width, 0.5, 0.5, BLOCK_SIZE=1024, SAME_H=False,
            SAME_W=False, USE_INT32_IDX=True,
        )
        return out
        """,
        decorator="",
    ),
    "gems_triu": Program(
        Part(f"{OPS}/triu.py", "triu_kernel"),
        "rows, columns = 1024, 1500",
        {"x": "torch.randn(rows, columns)"},
        "torch.triu(x, 1)",
        """
        out, (rows, columns) = torch.empty_like(x), x.shape
        triu_kernel[lambda meta: (triton.cdiv(rows, meta["M_BLOCK_SIZE"]),)](x, out, rows, columns, 1)
        return out
        """,
        decorator=tuned("M N", "M_BLOCK_SIZE N_BLOCK_SIZE num_warps", (4, 512, 4), (2, 1024, 4)),
    ),
    "gems_skip_layer_norm": Program(
        Part("flag_gems/fused/skip_layernorm.py", "skip_layer_norm_kernel"),
        "tokens, width = 512, 1536",
        {"x residual": "torch.randn(tokens, width)"},
        "F.layer_norm(x + residual, (self.width,), self.weight, self.bias)",
        """
        y, (rows, n) = torch.empty_like(x), x.shape
        skip_layer_norm_kernel[(rows,)](
            y, x, residual, self.weight, self.bias, n, 1, n, 1, n, 1, n, 1e-5, triton.next_power_of_2(n)
        )
        return y
        """,
        parameters={"weight": "torch.ones(width)", "bias": "torch.zeros(width)"},
        wrong=("tl.where(mask, x - mean, 0.0)", "x - mean"),
    ),
    "gems_layer_norm_fp16": Program(
        Part(f"{OPS}/layernorm.py", "layer_norm_persistent_kernel"),
        "tokens, width = 8192, 2560",
        {"x": "torch.randn(tokens, width).half()"},
        "F.layer_norm(x, (self.width,), self.weight, self.bias)",
        f"""
        (rows, columns), y = x.shape, torch.empty_like(x)
        mean, rstd = [{STATISTICS} for _ in range(2)]
        layer_norm_persistent_kernel[(rows, 1, 1)](
            x, y, self.weight, self.bias, mean, rstd, rows, columns, 1e-5, TILE_N=triton.next_power_of_2(columns)
        )
        return y
        """,
        decorator=WARPS,
        parameters={key: f"{value[:-1]}, dtype=torch.float16)" for key, value in AFFINE.items()},
        wrong=("s = tl.where(mask, d * d, 0)", "s = d * d"),
    ),
    "gems_layer_norm_loop": Program(
        Part(f"{OPS}/layernorm.py", "prev_multiple_of layer_norm_loop_kernel"),
        "tokens, width = 2048, 12288",
        {"x": "torch.randn(tokens, width)"},
        "F.layer_norm(x, (self.width,), self.weight, self.bias)",
        f"""
        (rows, columns), y = x.shape, torch.empty_like(x)
        mean, rstd = [{STATISTICS} for _ in range(2)]
        layer_norm_loop_kernel[(rows, 1, 1)](x, y, self.weight, self.bias, mean, rstd, rows, columns, 1e-5)
        return y
        """,
        decorator=TILES,
        parameters=AFFINE,
    ),
    "gems_layer_norm_backward": Program(
        (
            Part(f"{OPS}/layernorm.py", "layer_norm_backward_kernel", BLOCKS),
            Part(
                f"{OPS}/layernorm.py",
                "weight_bias_backward_kernel",
                tuned("N", "BLOCK_ROW_SIZE BLOCK_COL_SIZE num_warps", (32, 32, 4), (64, 16, 4)),
            ),
        ),
        "tokens, width = 4096, 1024",
        {"d x": "torch.randn(tokens, width)"},
        """
        mean, rstd = x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)
        return list(torch.ops.aten.native_layer_norm_backward(
            d, x, [self.width], mean, rstd, self.weight, self.bias, [True, True, True]
        ))
        """,
        """
        mean, rstd = x.mean(-1), torch.rsqrt(x.var(-1, correction=0) + 1e-5)
        (rows, columns), dx = x.shape, torch.empty_like(x)
        dw, db = torch.empty_like(self.weight), torch.empty_like(self.bias)
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_ROW_SIZE"]), 1, 1)
        layer_norm_backward_kernel[grid](d, x, self.weight, mean, rstd, dx, rows, columns)
        grid = lambda meta: (triton.cdiv(columns, meta["BLOCK_COL_SIZE"]), 1, 1)
        weight_bias_backward_kernel[grid](d, x, mean, rstd, dw, db, rows, columns)
        return [dx, dw, db]
        """,
        parameters=AFFINE,
        wrong=("accW += dy * x * rstd", "accW += dy * x"),
    ),
    "gems_batch_norm": Program(
        (
            Part(HEURISTICS, "batch_norm_heur_block_m batch_norm_heur_block_n"),
            Part(f"{OPS}/batch_norm.py", "batch_norm_forward_kernel"),
        ),
        "batch, channels, height = 16, 256, 28",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.batch_norm(x, None, None, self.weight, self.bias, True)",
        """
        y, parts = torch.empty_like(x), x.flatten(2)
        mean, rstd, ran, spread = [torch.zeros(x.shape[1], device=x.device) for _ in range(4)]
        batch_norm_forward_kernel[(x.shape[1],)](
            parts, self.weight, self.bias, mean, rstd, y, ran, spread, x.shape[0], parts.shape[2], *parts.stride(),
            *parts.stride(), 0.1, 1e-5, is_train=True, num_warps=8,
        )
        return y
        """,
        decorator=heuristics(BLOCK_M="batch_norm_heur_block_m", BLOCK_N="batch_norm_heur_block_n"),
        parameters={"weight": "torch.rand(channels)", "bias": "torch.randn(channels)"},
        before="from triton.language.extra.libdevice import rsqrt\n",
        wrong=("var = tl.sum(var + cnt * (mean - final_mean) * (mean - final_mean))", "var = tl.sum(var)"),
    ),
    "gems_softmax_backward_bf16": Program(
        Part(f"{OPS}/softmax.py", "softmax_backward_kernel_inner"),
        "rows, columns = 4096, 4096",
        {
            "d": "torch.randn(rows, columns, dtype=torch.bfloat16)",
            "y": "torch.softmax(torch.randn(rows, columns), -1).bfloat16()",
        },
        "torch.ops.aten._softmax_backward_data(d, y, -1, torch.bfloat16)",
        """
        dx, (rows, columns) = torch.empty_like(y), y.shape
        softmax_backward_kernel_inner[(rows, 1, 1)](y, d, dx, rows, columns, num_warps=8)
        return dx
        """,
        decorator=heuristics(
            TILE_M="lambda args: 1",
            TILE_N="lambda args: min(4096, triton.next_power_of_2(args['N']))",
            ONE_TILE_PER_CTA="lambda args: args['TILE_N'] >= args['N']",
        ),
        wrong=("out_tile * (out_grad_tile - scale[:, None])", "out_tile * out_grad_tile"),
    ),
    "gems_instance_norm": Program(
        Part(f"{FUSED}/instance_norm.py", "instance_norm_persistent_kernel"),
        "batch, channels, height = 8, 64, 96",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.instance_norm(x, None, None, self.weight, self.bias)",
        """
        y, rows, area = torch.empty_like(x), x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
        mean, rstd = [torch.empty(rows, device=x.device) for _ in range(2)]
        instance_norm_persistent_kernel[(rows,)](
            x, y, self.weight, self.bias, mean, rstd, rows, area, x.shape[1], 1e-5,
            TILE_N=triton.next_power_of_2(area), HAS_WEIGHT_BIAS=True, num_warps=16,
        )
        return y
        """,
        decorator="",
        parameters={"weight": "torch.rand(channels)", "bias": "torch.randn(channels)"},
        wrong=("c_offsets = pid % C", "c_offsets = pid // C"),
    ),
    "gems_weight_norm": Program(
        Part(f"{FUSED}/weight_norm.py", "weight_norm_except_dim_kernel"),
        "rows, columns = 4096, 3072",
        {"v": "torch.randn(rows, columns)", "g": "torch.rand(rows, 1) + 0.5"},
        "torch._weight_norm(v, g, 0)",
        """
        out, norm, (rows, columns) = torch.empty_like(v), torch.empty_like(g), v.shape
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_ROW_SIZE"]),)
        weight_norm_except_dim_kernel[grid](out, norm, v, g, 1, rows, columns, 1e-12)
        return out
        """,
        decorator=tuned(
            "v_shape0 v_shape1 v_shape2", "BLOCK_ROW_SIZE BLOCK_COL_SIZE num_warps", (4, 512, 4), (1, 1024, 4)
        ),
        wrong=("out = v_value * g_value / v_norm", "out = v_value / v_norm"),
    ),
    "gems_cross_entropy_fp16": Program(
        Part(f"{FUSED}/cross_entropy_loss.py", "celoss_indices_kernel"),
        "tokens, words = 1024, 32000",
        {"x": "torch.randn(tokens, words).half()", "target": "torch.randint(0, words, (tokens,))"},
        "F.cross_entropy(x.float(), target)",
        """
        rows, words = x.shape
        loss, kept = [torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2)]
        celoss_indices_kernel[(1, rows)](x, target, None, loss, kept, -100, words, 1)
        return loss.mean()
        """,
        decorator=tuned("C D", "BLOCK_C BLOCK_D num_warps", (2048, 1, 8), (4096, 1, 8)),
        wrong=("range(0, C, BLOCK_C)", "range(0, C - BLOCK_C, BLOCK_C)"),
    ),
    "gems_attention_fp16_autotuned": Program(
        Part(f"{OPS}/attention.py", "_attn_fwd_inner _attn_fwd"),
        "batch, heads, tokens, width = 2, 16, 2048, 64",
        {"q k v": "torch.randn(batch, heads, tokens, width).half()"},
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
        decorator=tuned(
            "KV_CTX HEAD_DIM", "BLOCK_M BLOCK_N PRE_LOAD_V num_warps num_stages", (64, 32, 0, 4, 2), (128, 64, 0, 8, 2)
        ),
        wrong=("mask = offs_m[:, None] >= (start_n", "mask = offs_m[:, None] > (start_n"),
    ),
    "gems_conv2d": Program(
        Part(f"{OPS}/conv2d.py", "conv2d_forward_kernel"),
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
        decorator=tuned(
            "in_n out_c",
            "BLOCK_NI_HO_WO BLOCK_CI BLOCK_CO num_warps num_stages",
            (64, 32, 64, 4, 3),
            (128, 32, 64, 8, 3),
        ),
        parameters={"weight": "torch.randn(outputs, channels, 3, 3) / 24", "bias": "torch.randn(outputs)"},
        wrong=("accum += bias", "accum -= bias"),
    ),
    "gems_baddbmm_fp16": Program(
        Part(f"{OPS}/baddbmm.py", "baddbmm_kernel"),
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
        decorator=heuristics(
            DIVISIBLE_M="lambda args: args['M'] % args['TILE_M'] == 0",
            DIVISIBLE_N="lambda args: args['N'] % args['TILE_N'] == 0",
            DIVISIBLE_K="lambda args: args['K'] % args['TILE_K'] == 0",
        ),
        wrong=("accumulator * alpha + bi * beta", "accumulator * alpha + bi"),
    ),
    "gems_max_pool2d_autotuned": Program(
        (LIMITS, Part(f"{OPS}/max_pool2d_with_indices.py", "max_pool2d_forward_kernel")),
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
        decorator=tuned("out_h out_w", "BLOCK_H BLOCK_W num_warps", (16, 16, 4), (32, 32, 8)),
        wrong=("current_idx = h_in * in_w + w_in", "current_idx = h_in * in_h + w_in + 1"),
    ),
    "gems_cat_bf16": Program(
        Part(f"{OPS}/cat.py", "cat_copy_func_kernel_4"),
        "rows, width = 4096, 1024",
        {
            "a": "torch.randn(rows, width, dtype=torch.bfloat16)",
            "b": "torch.randn(rows, width * 2, dtype=torch.bfloat16)",
            "c": "torch.randn(rows, width // 2, dtype=torch.bfloat16)",
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
    "gems_roll": Program(
        Part(f"{OPS}/roll.py", "roll_kernel _roll_single_dim"),
        "batch, rows, columns = 8, 1024, 1000",
        {"x": "torch.randn(batch, rows, columns)"},
        "torch.roll(x, 300, 1)",
        "_roll_single_dim(x, 300, 1)",
        wrong=("_roll_single_dim(x, 300, 1)", "_roll_single_dim(x, 301, 1)"),
    ),
    "gems_moe_sum_fp16": Program(
        Part(f"{FUSED}/moe_sum.py", "moe_sum_kernel"),
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
    "gems_topk_softmax": Program(
        Part(f"{FUSED}/topk_softmax.py", "topk_gating_softmax_kernel"),
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
    "gems_embedding_backward": Program(
        Part(f"{OPS}/embedding_dense_backward.py", "_embedding_dense_backward_kernel"),
        "tokens, words, width = 4096, 8000, 512",
        {"d": "torch.randn(tokens, width)", "ids": "torch.randint(0, words, (tokens,))"},
        "torch.ops.aten.embedding_dense_backward(d, ids, self.words, -1, False)",
        """
        out = torch.zeros(self.words, d.shape[1], device=d.device)
        grid = (ids.numel(), triton.cdiv(d.shape[1], 128))
        _embedding_dense_backward_kernel[grid](d, ids, out, self.words, -1, BLOCK_D=128, EMBED_DIM=d.shape[1])
        return out
        """,
        init="words",
        wrong=("self.words, -1, BLOCK_D", "self.words - 1, -1, BLOCK_D"),
    ),
    "gems_reflection_pad2d": Program(
        Part(f"{OPS}/reflection_pad2d.py", "reflection_pad2d_kernel"),
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
    "gems_amax_bf16": Program(
        (LIMITS, Part(f"{OPS}/amax.py", "amax_kernel")),
        "rows, columns = 4096, 8192",
        {"x": "torch.randn(rows, columns, dtype=torch.bfloat16)"},
        "x.amax(-1)",
        """
        (rows, columns), out = x.shape, torch.empty_like(x[:, 0])
        amax_kernel[lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]),)](x, out, rows, columns)
        return out
        """,
        decorator=ROWS,
        wrong=("_all = tl.maximum(_all, a)", "_all = a"),
    ),
}
