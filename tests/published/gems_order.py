# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of flag-gems: order, quantisation, images, triangles. Host parts are ours."""

from tests.published.gems import OPS, TL, tuned
from tests.published.packages import Part
from tests.published.program import Program

SORTED = (("core.", "tl."), ("zeros_like(", "tl.zeros_like("))
LOG2 = """
@triton.constexpr_function
def _log2(number):
    return number.bit_length() - 1
"""

PROGRAMS = [
    Program(
        "gems_topk",
        (
            Part(
                f"{OPS}/topk.py",
                "_MIN_FLOAT32_VAL _MAX_FLOAT32_VAL _MIN_FLOAT16_VAL _MAX_FLOAT16_VAL _MIN_BFLOAT16_VAL "
                "_MAX_BFLOAT16_VAL _MIN_INT32_VAL _MAX_INT32_VAL _get_finfo_val topk_stage1_kernel _compare_and_swap "
                "_bitonic_merge argsort topk_stage2_kernel",
            ),
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
        changes=(*TL, *SORTED),
    ),
    Program(
        "gems_sort_of_rows",
        (
            Part(
                f"{OPS}/topk.py",
                "_MIN_FLOAT32_VAL _MAX_FLOAT32_VAL _MIN_FLOAT16_VAL _MAX_FLOAT16_VAL _MIN_BFLOAT16_VAL "
                "_MAX_BFLOAT16_VAL _get_finfo_val _compare_and_swap _bitonic_merge argsort",
            ),
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
    Program(
        "gems_group_quant_fp8",
        (Part(f"{OPS}/per_token_group_quant_fp8.py", "_per_token_group_quant_fp8"),),
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
    Program(
        "gems_block_fp8_matmul",
        (Part(f"{OPS}/w8a8_block_fp8_matmul.py", "w8a8_block_fp8_matmul_kernel"),),
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
    Program(
        "gems_avg_pool2d_autotuned",
        (Part(f"{OPS}/avg_pool2d.py", "avg_pool2d_forward_kernel"),),
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
    Program(
        "gems_upsample_nearest2d",
        (Part(f"{OPS}/upsample_nearest2d.py", "upsample_nearest2d_kernel", {"upsample_nearest2d_kernel": ""}),),
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
    ),
    Program(
        "gems_triu",
        (
            Part(
                f"{OPS}/triu.py",
                "triu_kernel",
                {
                    "triu_kernel": tuned(
                        "['M', 'N']",
                        "{'M_BLOCK_SIZE': 4, 'N_BLOCK_SIZE': 512}, num_warps=4",
                        "{'M_BLOCK_SIZE': 2, 'N_BLOCK_SIZE': 1024}, num_warps=4",
                    )
                },
            ),
        ),
        "rows, columns = 1024, 1500",
        {"x": "torch.randn(rows, columns)"},
        "torch.triu(x, 1)",
        """
        out, (rows, columns) = torch.empty_like(x), x.shape
        triu_kernel[lambda meta: (triton.cdiv(rows, meta["M_BLOCK_SIZE"]),)](x, out, rows, columns, 1)
        return out
        """,
        changes=TL,
    ),
    Program(
        "gems_skip_layer_norm",
        (Part("flag_gems/fused/skip_layernorm.py", "skip_layer_norm_kernel"),),
        "tokens, width = 512, 1536",
        {"x": "torch.randn(tokens, width)", "residual": "torch.randn(tokens, width)"},
        "F.layer_norm(x + residual, (self.width,), self.weight, self.bias)",
        """
        y, (rows, n) = torch.empty_like(x), x.shape
        skip_layer_norm_kernel[(rows,)](
            y, x, residual, self.weight, self.bias, n, 1, n, 1, n, 1, n, 1e-5, triton.next_power_of_2(n)
        )
        return y
        """,
        init={"width": "width"},
        parameters={"weight": "torch.ones(width)", "bias": "torch.zeros(width)"},
        changes=TL,
        wrong=("tl.where(mask, x - mean, 0.0)", "x - mean"),
    ),
]
