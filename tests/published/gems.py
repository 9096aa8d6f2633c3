# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of flag-gems: products, reductions, norms. Host parts are ours."""

from tests.published.packages import Part
from tests.published.program import Program

OPS = "flag_gems/ops"
LIMITS = Part("flag_gems/utils/limits.py", "get_dtype_max get_dtype_min")
HEURISTICS = "flag_gems/runtime/backend/_nvidia/heuristics_config_utils.py"
TL = (("tle.", "tl."),)


def heuristics(**names: str) -> str:
    """A decorator for the package's own functions, which its runtime finds by name."""
    return f"@triton.heuristics({{{', '.join(f'{key!r}: {value}' for key, value in names.items())}}})"


def tuned(key: str, *configs: str) -> str:
    """A decorator with configurations of ours."""
    made = ", ".join(f"triton.Config({config})" for config in configs)
    return f"@triton.autotune(configs=[{made}], key={key})"


ROWS = tuned(
    "['M', 'N']",
    "{'BLOCK_M': 4, 'BLOCK_N': 1024}, num_warps=8",
    "{'BLOCK_M': 8, 'BLOCK_N': 1024}, num_warps=8",
    "{'BLOCK_M': 16, 'BLOCK_N': 512}, num_warps=8",
    "{'BLOCK_M': 4, 'BLOCK_N': 256}, num_warps=4",
)

PROGRAMS = [
    Program(
        "gems_rms_norm_fp16",
        (Part(f"{OPS}/rms_norm.py", "rms_norm_kernel"),),
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
        init={"width": "width"},
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
    ),
    Program(
        "gems_group_norm",
        (Part(f"{OPS}/groupnorm.py", "group_norm_kernel"),),
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
        init={"channels": "channels"},
        parameters={"weight": "torch.ones(channels)", "bias": "torch.zeros(channels)"},
        before="from triton.language.extra.libdevice import rsqrt\n",
        changes=TL,
    ),
    Program(
        "gems_mean_autotuned",
        (Part(f"{OPS}/mean.py", "mean_dim_kernel", {"mean_dim_kernel": ROWS}),),
        "rows, columns = 512, 4096",
        {"x": "torch.randn(rows, columns)"},
        "x.mean(-1)",
        """
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        mean_dim_kernel[lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]),)](x, out, rows, columns)
        return out
        """,
        changes=TL,
        wrong=("mean = summed / N", "mean = summed / (N - 1)"),
    ),
    Program(
        "gems_var_mean_autotuned",
        (Part(f"{OPS}/var_mean.py", "welford_func var_mean_welford_kernel", {"var_mean_welford_kernel": ROWS}),),
        "rows, columns = 512, 4096",
        {"x": "torch.randn(rows, columns)"},
        "list(torch.var_mean(x, -1))",
        """
        rows, columns = x.shape
        var, mean = [torch.empty(rows, dtype=x.dtype, device=x.device) for _ in range(2)]
        var_mean_welford_kernel[lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]),)](x, var, mean, rows, columns, 1)
        return [var, mean]
        """,
        changes=TL,
    ),
    Program(
        "gems_vector_norm",
        (Part(f"{OPS}/vector_norm.py", "l2_norm_kernel_1 l2_norm_kernel_2"),),
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
        changes=TL,
    ),
    Program(
        "gems_cumsum",
        (Part(f"{OPS}/cumsum.py", "scan_part_sum_kernel add_base_sum_kernel"),),
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
        changes=TL,
        wrong=("partial_sum + pid - 1", "partial_sum + pid"),
    ),
    Program(
        "gems_softmax_heuristics",
        (
            Part(HEURISTICS, "softmax_heur_one_tile_per_cta softmax_heur_tile_n_inner softmax_heur_num_warps_inner"),
            Part(
                f"{OPS}/softmax.py",
                "next_multiple_of prev_multiple_of softmax_kernel_inner",
                {
                    "softmax_kernel_inner": heuristics(
                        TILE_N="softmax_heur_tile_n_inner",
                        ONE_TILE_PER_CTA="softmax_heur_one_tile_per_cta",
                        num_warps="softmax_heur_num_warps_inner",
                    )
                },
            ),
        ),
        "rows, columns = 32, 50257",
        {"x": "torch.randn(rows, columns)"},
        "torch.softmax(x, -1)",
        """
        out = torch.empty_like(x)
        softmax_kernel_inner[(x.shape[0], 1, 1)](out, x, x.shape[0], x.shape[1])
        return out
        """,
        changes=TL,
    ),
    Program(
        "gems_softmax_of_columns",
        (
            Part(
                f"{OPS}/softmax.py",
                "next_multiple_of prev_multiple_of softmax_kernel_non_inner",
                {
                    "softmax_kernel_non_inner": heuristics(
                        TILE_K="lambda args: min(64, triton.next_power_of_2(args['K']))",
                        TILE_N="lambda args: triton.cdiv(8192, args['TILE_K'])",
                        ONE_TILE_PER_CTA="lambda args: args['TILE_N'] >= args['N']",
                    )
                },
            ),
        ),
        "batch, rows, columns = 8, 512, 256",
        {"x": "torch.randn(batch, rows, columns)"},
        "torch.softmax(x, 1)",
        """
        out, (batch, rows, columns) = torch.empty_like(x), x.shape
        grid = lambda meta: (batch, triton.cdiv(columns, meta["TILE_K"]), 1)
        softmax_kernel_non_inner[grid](out, x, batch, rows, columns)
        return out
        """,
        changes=TL,
    ),
    Program(
        "gems_log_softmax",
        (Part(f"{OPS}/log_softmax.py", "log_softmax_kernel"),),
        "rows, columns = 256, 8000",
        {"x": "torch.randn(rows, columns)"},
        "torch.log_softmax(x, -1)",
        """
        out, (rows, columns) = torch.empty_like(x), x.shape
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]), 1)
        log_softmax_kernel[grid](out, x, rows, columns, 1, num_warps=8)
        return out
        """,
        changes=TL,
    ),
]
