# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of liger-kernel: gradients. Stores that the package makes in place go to copies."""

from tests.published.liger import CONTEXT, DEVICE, OPS, RSQRT, SETTINGS, TANH, XPU
from tests.published.liger_losses import CASTING
from tests.published.packages import Part
from tests.published.program import Program

NPU = "def get_npu_core_count():\n    return 1\n"
TYPES = Part(f"{OPS}/utils.py", "torch_to_triton_dtype")
RMS = f"{CASTING} _rms_norm_backward_kernel _block_rms_norm_backward_kernel rms_norm_backward"

PROGRAMS = [
    Program(
        "liger_softmax_backward",
        (
            SETTINGS,
            Part(
                f"{OPS}/softmax.py",
                "_softmax_single_block_backward_kernel _softmax_multi_block_backward_kernel _softmax_backward",
            ),
        ),
        "rows, columns = 2048, 8192",
        {"dy": "torch.randn(rows, columns)", "y": "torch.softmax(torch.randn(rows, columns), -1)"},
        "torch.ops.aten._softmax_backward_data(dy, y, -1, torch.float32)",
        "_softmax_backward(dy, y, *calculate_settings(y.shape[1]), False)",
        wrong=("y * (dy - dot)", "y * dy - dot"),
    ),
    Program(
        "liger_swiglu_backward_bf16",
        (
            SETTINGS,
            Part(
                f"{OPS}/swiglu.py",
                "_SWIGLU_TILE _SWIGLU_TILE_MIN_BLOCK _should_tile _swiglu_tile_settings silu _swiglu_backward_kernel "
                "_swiglu_backward_kernel_tiled swiglu_backward",
            ),
        ),
        "tokens, width = 2048, 5632",
        {name: "torch.randn(tokens, width, dtype=torch.bfloat16)" for name in ("a", "b", "dc")},
        """
        x, s = a.float(), torch.sigmoid(a.float())
        da = dc.float() * b.float() * (s + x * s * (1 - s))
        return [da.to(a.dtype), (dc.float() * x * s).to(a.dtype)]
        """,
        "return list(swiglu_backward(a.clone(), b.clone(), dc))",
        before=DEVICE,
        changes=CONTEXT,
        wrong=("silu_a * (1 - sig_a) + sig_a) * b_row * gate", "silu_a + sig_a) * b_row * gate"),
    ),
    Program(
        "liger_geglu_backward",
        (SETTINGS, Part(f"{OPS}/geglu.py", "_geglu_tanh_backward_kernel geglu_backward")),
        "tokens, width = 1024, 4096",
        {name: "torch.randn(tokens, width)" for name in ("a", "b", "dc")},
        """
        da = torch.ops.aten.gelu_backward(dc * b, a, approximate="tanh")
        return [da, dc * F.gelu(a, approximate="tanh")]
        """,
        "return list(geglu_backward(a.clone(), b.clone(), dc))",
        before=TANH,
        changes=CONTEXT,
    ),
    Program(
        "liger_rms_norm_backward",
        (SETTINGS, TYPES, Part(f"{OPS}/rms_norm.py", RMS)),
        "tokens, width = 4096, 2048",
        {key: "torch.randn(tokens, width)" for key in ("dy", "x")},
        """
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        normed, wdy = x * rstd, dy * self.weight
        return [rstd * (wdy - normed * (wdy * normed).mean(-1, keepdim=True)), (dy * normed).sum(0)]
        """,
        """
        rstd = torch.rsqrt(x.pow(2).mean(-1) + 1e-6)
        block, warps = calculate_settings(x.shape[1])
        return list(rms_norm_backward(dy, x, self.weight, rstd, 0.0, 0, block, warps, False, True))
        """,
        init={"width": "width"},
        parameters={"weight": "torch.randn(width)"},
        before=RSQRT + XPU + NPU,
        changes=(*CONTEXT, ("sm_count = 1\n", "sm_count = 128\n")),
    ),
    Program(
        "liger_layer_norm_backward",
        (SETTINGS, Part(f"{OPS}/layer_norm.py", "_layer_norm_backward_kernel layer_norm_backward")),
        "tokens, width = 2048, 3072",
        {key: "torch.randn(tokens, width)" for key in ("dy", "x")},
        """
        mean, rstd = x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)
        return list(torch.ops.aten.native_layer_norm_backward(
            dy, x, [x.shape[1]], mean, rstd, self.weight, self.bias, [True, True, True]
        ))
        """,
        """
        mean, rstd = x.mean(-1), torch.rsqrt(x.var(-1, correction=0) + 1e-5)
        return list(layer_norm_backward(dy, x, self.weight, self.bias, mean, rstd))
        """,
        init={"width": "width"},
        parameters={"weight": "torch.ones(width)", "bias": "torch.zeros(width)"},
        before=RSQRT + XPU + NPU,
        changes=(("sm_count = 1\n", "sm_count = 128\n"),),
        wrong=("c2 = tl.sum(wdy, axis=0) / n_cols", "c2 = tl.sum(dy_f32, axis=0) / n_cols * 0"),
    ),
    Program(
        "liger_dyt_backward_autotuned",
        (
            Part(
                f"{OPS}/dyt.py",
                "_dyt_bwd_kernel",
                {
                    "_dyt_bwd_kernel": "@triton.autotune(configs=[triton.Config({'BLOCK_N': n}, num_warps=w) "
                    "for n, w in ((1024, 4), (2048, 8))], key=['N'], reset_to_zero=['DA'])"
                },
            ),
        ),
        "tokens, width = 1024, 4096",
        {key: "torch.randn(tokens, width)" for key in ("dy", "x")},
        """
        y = torch.tanh(self.alpha * x)
        d = dy * self.gamma * (1 - y * y)
        return [d * self.alpha, (d * x).sum().reshape(1), (dy * y).sum(0), dy.sum(0)]
        """,
        """
        rows, columns = x.shape
        da = torch.zeros(128, triton.cdiv(columns, 512), device=x.device)
        dg, db = [torch.empty(128, columns, device=x.device) for _ in range(2)]
        dx = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(columns, meta["BLOCK_N"]), 128)
        _dyt_bwd_kernel[grid](dy, dx, da, dg, db, x, self.alpha, self.gamma, True, rows, columns)
        return [dx, da.sum().reshape(1), dg.sum(0), db.sum(0)]
        """,
        init={"width": "width"},
        parameters={"alpha": "torch.full((1,), 0.5)", "gamma": "torch.randn(width)"},
        before=TANH,
    ),
    Program(
        "liger_sparsemax_backward",
        (SETTINGS, Part(f"{OPS}/sparsemax.py", "_sparsemax_backward_kernel _sparsemax_backward")),
        "rows, columns = 1024, 4096",
        {"d": "torch.randn(rows, columns)", "y": "torch.relu(torch.randn(rows, columns))"},
        """
        kept = y > 0
        return torch.where(kept, d - (d * kept).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1), 0)
        """,
        "_sparsemax_backward(d, y, -1)",
        wrong=("go_sum / tl.maximum(supp_cnt, 1e-6)", "go_sum / n_cols"),
    ),
    Program(
        "liger_group_norm_backward",
        (Part(f"{OPS}/group_norm.py", "_group_norm_backward_kernel group_norm_backward"),),
        "batch, channels, height = 8, 64, 64",
        {
            "dy": "torch.randn(batch, channels, height, height)",
            "x": "torch.randn(batch, channels, height, height)",
        },
        """
        batch, channels, height, width = x.shape
        parts = x.reshape(batch, 8, -1)
        mean, rstd = parts.mean(-1), torch.rsqrt(parts.var(-1, correction=0) + 1e-5)
        return list(torch.ops.aten.native_group_norm_backward(
            dy, x, mean, rstd, self.weight, batch, channels, height * width, 8, [True, True, True]
        ))
        """,
        """
        parts = x.reshape(x.shape[0], 8, -1)
        mean, rstd = parts.mean(-1), torch.rsqrt(parts.var(-1, correction=0) + 1e-5)
        return list(group_norm_backward(dy, x.flatten(2), self.weight, self.bias, mean, rstd, x.shape[1], 8))
        """,
        init={"channels": "channels"},
        parameters={"weight": "torch.randn(channels)", "bias": "torch.zeros(channels)"},
        before=RSQRT + "\nMAX_FUSED_SIZE = 65536\n",
    ),
]
