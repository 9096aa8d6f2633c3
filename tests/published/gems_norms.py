# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of flag-gems: norms and their gradients, softmax's gradient, losses. Host parts are ours."""

from tests.published.gems import HEURISTICS, OPS, TL, heuristics, tuned
from tests.published.packages import Part
from tests.published.program import Program

FUSED = "flag_gems/fused"
WARPS = tuned("['M', 'N']", "{}, num_warps=4", "{}, num_warps=8")
TILES = tuned("['M', 'N']", "{'TILE_N': 1024}, num_warps=4", "{'TILE_N': 2048}, num_warps=8")
BLOCKS = tuned(
    "['M', 'N']",
    "{'BLOCK_ROW_SIZE': 1, 'BLOCK_COL_SIZE': 2048}, num_warps=8",
    "{'BLOCK_ROW_SIZE': 4, 'BLOCK_COL_SIZE': 1024}, num_warps=8",
)
AFFINE = {"weight": "torch.ones(width)", "bias": "torch.zeros(width)"}
STATISTICS = "torch.empty(rows, dtype=torch.float32, device=x.device)"

PROGRAMS = [
    Program(
        "gems_layer_norm_fp16",
        (Part(f"{OPS}/layernorm.py", "layer_norm_persistent_kernel", {"layer_norm_persistent_kernel": WARPS}),),
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
        init={"width": "width"},
        parameters={key: f"{value[:-1]}, dtype=torch.float16)" for key, value in AFFINE.items()},
        changes=TL,
        wrong=("s = tl.where(mask, d * d, 0)", "s = d * d"),
    ),
    Program(
        "gems_layer_norm_loop",
        (
            Part(
                f"{OPS}/layernorm.py",
                "prev_multiple_of layer_norm_loop_kernel",
                {"layer_norm_loop_kernel": TILES},
            ),
        ),
        "tokens, width = 2048, 12288",
        {"x": "torch.randn(tokens, width)"},
        "F.layer_norm(x, (self.width,), self.weight, self.bias)",
        f"""
        (rows, columns), y = x.shape, torch.empty_like(x)
        mean, rstd = [{STATISTICS} for _ in range(2)]
        layer_norm_loop_kernel[(rows, 1, 1)](x, y, self.weight, self.bias, mean, rstd, rows, columns, 1e-5)
        return y
        """,
        init={"width": "width"},
        parameters=AFFINE,
        changes=TL,
    ),
    Program(
        "gems_layer_norm_backward",
        (
            Part(
                f"{OPS}/layernorm.py",
                "layer_norm_backward_kernel weight_bias_backward_kernel",
                {
                    "layer_norm_backward_kernel": BLOCKS,
                    "weight_bias_backward_kernel": tuned(
                        "['N']",
                        "{'BLOCK_ROW_SIZE': 32, 'BLOCK_COL_SIZE': 32}, num_warps=4",
                        "{'BLOCK_ROW_SIZE': 64, 'BLOCK_COL_SIZE': 16}, num_warps=4",
                    ),
                },
            ),
        ),
        "tokens, width = 4096, 1024",
        {key: "torch.randn(tokens, width)" for key in ("d", "x")},
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
        init={"width": "width"},
        parameters=AFFINE,
        changes=TL,
        wrong=("accW += dy * x * rstd", "accW += dy * x"),
    ),
    Program(
        "gems_batch_norm",
        (
            Part(HEURISTICS, "batch_norm_heur_block_m batch_norm_heur_block_n"),
            Part(
                f"{OPS}/batch_norm.py",
                "batch_norm_forward_kernel",
                {
                    "batch_norm_forward_kernel": heuristics(
                        BLOCK_M="batch_norm_heur_block_m", BLOCK_N="batch_norm_heur_block_n"
                    )
                },
            ),
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
        init={"channels": "channels"},
        parameters={"weight": "torch.rand(channels)", "bias": "torch.randn(channels)"},
        before="from triton.language.extra.libdevice import rsqrt\n",
        wrong=("var = tl.sum(var + cnt * (mean - final_mean) * (mean - final_mean))", "var = tl.sum(var)"),
    ),
    Program(
        "gems_softmax_backward_bf16",
        (
            Part(
                f"{OPS}/softmax.py",
                "softmax_backward_kernel_inner",
                {
                    "softmax_backward_kernel_inner": heuristics(
                        TILE_M="lambda args: 1",
                        TILE_N="lambda args: min(4096, triton.next_power_of_2(args['N']))",
                        ONE_TILE_PER_CTA="lambda args: args['TILE_N'] >= args['N']",
                    )
                },
            ),
        ),
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
        changes=TL,
        wrong=("out_tile * (out_grad_tile - scale[:, None])", "out_tile * out_grad_tile"),
    ),
    Program(
        "gems_instance_norm",
        (
            Part(
                f"{FUSED}/instance_norm.py", "instance_norm_persistent_kernel", {"instance_norm_persistent_kernel": ""}
            ),
        ),
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
        init={"channels": "channels"},
        parameters={"weight": "torch.rand(channels)", "bias": "torch.randn(channels)"},
        wrong=("c_offsets = pid % C", "c_offsets = pid // C"),
    ),
    Program(
        "gems_weight_norm",
        (
            Part(
                f"{FUSED}/weight_norm.py",
                "weight_norm_except_dim_kernel",
                {
                    "weight_norm_except_dim_kernel": tuned(
                        "['v_shape0', 'v_shape1', 'v_shape2']",
                        "{'BLOCK_ROW_SIZE': 4, 'BLOCK_COL_SIZE': 512}, num_warps=4",
                        "{'BLOCK_ROW_SIZE': 1, 'BLOCK_COL_SIZE': 1024}, num_warps=4",
                    )
                },
            ),
        ),
        "rows, columns = 4096, 3072",
        {"v": "torch.randn(rows, columns)", "g": "torch.rand(rows, 1) + 0.5"},
        "torch._weight_norm(v, g, 0)",
        """
        out, norm, (rows, columns) = torch.empty_like(v), torch.empty_like(g), v.shape
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_ROW_SIZE"]),)
        weight_norm_except_dim_kernel[grid](out, norm, v, g, 1, rows, columns, 1e-12)
        return out
        """,
        changes=TL,
        wrong=("out = v_value * g_value / v_norm", "out = v_value / v_norm"),
    ),
    Program(
        "gems_cross_entropy_fp16",
        (
            Part(
                f"{FUSED}/cross_entropy_loss.py",
                "celoss_indices_kernel",
                {
                    "celoss_indices_kernel": tuned(
                        "['C', 'D']",
                        "{'BLOCK_C': 2048, 'BLOCK_D': 1}, num_warps=8",
                        "{'BLOCK_C': 4096, 'BLOCK_D': 1}, num_warps=8",
                    )
                },
            ),
        ),
        "tokens, words = 1024, 32000",
        {"x": "torch.randn(tokens, words).half()", "target": "torch.randint(0, words, (tokens,))"},
        "F.cross_entropy(x.float(), target)",
        """
        rows, words = x.shape
        loss, kept = [torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2)]
        celoss_indices_kernel[(1, rows)](x, target, None, loss, kept, -100, words, 1)
        return loss.mean()
        """,
        changes=TL,
        wrong=("range(0, C, BLOCK_C)", "range(0, C - BLOCK_C, BLOCK_C)"),
    ),
]
