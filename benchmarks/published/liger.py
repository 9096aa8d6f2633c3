# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of liger-kernel; stores that the package makes in place go to copies."""

from benchmarks.published.packages import Part, tuned
from benchmarks.published.program import Program

OPS = "liger_kernel/ops"
SETTINGS = Part(f"{OPS}/utils.py", "is_hip calculate_settings")
HIP = Part(f"{OPS}/utils.py", "is_hip")
TYPES = Part(f"{OPS}/utils.py", "torch_to_triton_dtype")
XPU = "def set_large_grf_mode(kernel_args):\n    kernel_args['grf_mode'] = 'large'\n"
NPU = "def get_npu_core_count():\n    return 1\n"
RSQRT = "from triton.language.extra.libdevice import rsqrt\n"
TANH = "from triton.language.extra.libdevice import tanh\n"
CONTEXT = (("with device_context(", "with torch.cuda.device("),)
CORES = (("sm_count = 1\n", "sm_count = 128\n"),)
DEVICE = """
def infer_device_arch():
    return "hopper"

def infer_device():
    return "cuda"
"""
REDUCTIONS = "_REDUCTION_MODE_NONE _REDUCTION_MODE_SUM _REDUCTION_MODE_MEAN _REDUCTION_MODE_BATCHMEAN"
CASTING = "_CASTING_MODE_NONE _CASTING_MODE_LLAMA _CASTING_MODE_GEMMA _str_to_casting_mode"
TILED = "_SWIGLU_TILE _SWIGLU_TILE_MIN_BLOCK _should_tile _swiglu_tile_settings silu"
RMS = f"{CASTING} _rms_norm_backward_kernel _block_rms_norm_backward_kernel rms_norm_backward"
LOGITS = "torch.randn(tokens, words)"

PROGRAMS = {
    "liger_softmax": Program(
        (
            SETTINGS,
            Part(
                f"{OPS}/softmax.py",
                "_softmax_single_block_forward_kernel _softmax_multi_block_forward_kernel _softmax_forward",
            ),
        ),
        "rows, columns = 1024, 4096",
        {"x": "torch.randn(rows, columns)"},
        "torch.softmax(x, -1)",
        "_softmax_forward(x)[0]",
        wrong=("x2d, x2d.stride(0), n_cols,", "x2d, x2d.stride(0), n_cols - 1,"),
    ),
    "liger_swiglu_bf16": Program(
        (
            SETTINGS,
            Part(
                f"{OPS}/swiglu.py",
                "_SWIGLU_TILE _SWIGLU_TILE_MIN_BLOCK _should_tile _swiglu_tile_settings silu _swiglu_forward_kernel "
                "_swiglu_forward_kernel_tiled swiglu_forward",
            ),
        ),
        "tokens, width = 512, 5632",
        {"a b": "torch.randn(tokens, width, dtype=torch.bfloat16)"},
        "F.silu(a) * b",
        "swiglu_forward(a, b)[2]",
        before=DEVICE,
        changes=CONTEXT,
    ),
    "liger_geglu": Program(
        (SETTINGS, Part(f"{OPS}/geglu.py", "_geglu_tanh_forward_kernel geglu_forward")),
        "tokens, width = 128, 11008",
        {"a b": "torch.randn(tokens, width)"},
        "F.gelu(a, approximate='tanh') * b",
        "geglu_forward(a, b)[2]",
        before=TANH,
        changes=CONTEXT,
    ),
    "liger_rms_norm_llama_fp16": Program(
        (
            SETTINGS,
            Part(
                f"{OPS}/rms_norm.py",
                "_CASTING_MODE_NONE _CASTING_MODE_LLAMA _CASTING_MODE_GEMMA _str_to_casting_mode "
                "_rms_norm_forward_kernel _block_rms_norm_forward_kernel rms_norm_forward",
            ),
        ),
        "tokens, width = 512, 4096",
        {"x": "torch.randn(tokens, width, dtype=torch.float16)"},
        """
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)
        """,
        "rms_norm_forward(x, self.weight, 1e-6, 0.0, 'llama', None)[0]",
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
        before=RSQRT + XPU,
        changes=CONTEXT,
        wrong=("self.weight, 1e-6, 0.0", "self.weight, 1e-1, 0.0"),
    ),
    "liger_layer_norm": Program(
        (SETTINGS, Part(f"{OPS}/layer_norm.py", "_layer_norm_forward_kernel layer_norm_forward")),
        "batch, tokens, width = 2, 256, 3072",
        {"x": "torch.randn(batch, tokens, width)"},
        "F.layer_norm(x, (self.width,), self.weight, self.bias)",
        "layer_norm_forward(x, self.weight, self.bias, 1e-5)[0]",
        parameters={"weight": "torch.ones(width)", "bias": "torch.zeros(width)"},
        before=RSQRT + XPU,
    ),
    "liger_rope": Program(
        Part(f"{OPS}/rope.py", "_triton_rope _resolve_rotary_dim rope_forward"),
        "batch, heads, kv_heads, tokens, width = 1, 16, 4, 256, 128",
        {
            "q": "torch.randn(batch, heads, tokens, width)",
            "k": "torch.randn(batch, kv_heads, tokens, width)",
            "angles": "torch.rand(1, tokens, width // 2) * 6.28",
        },
        """
        angles = torch.cat((angles, angles), -1)[:, None]
        turned = [torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1) for x in (q, k)]
        return [x * angles.cos() + y * angles.sin() for x, y in zip((q, k), turned)]
        """,
        """
        angles = torch.cat((angles, angles), -1)
        q, k = q.transpose(1, 2).clone().transpose(1, 2), k.transpose(1, 2).clone().transpose(1, 2)
        return [x.contiguous() for x in rope_forward(q, k, angles.cos(), angles.sin())[:2]]
        """,
        wrong=("cos.stride(-2),\n        sin,", "cos.stride(-2) // 2,\n        sin,"),
    ),
    "liger_cross_entropy": Program(
        (HIP, Part(f"{OPS}/cross_entropy.py", "LOG2_E liger_cross_entropy_kernel cross_entropy_forward")),
        "tokens, words = 128, 32000",
        {"x": LOGITS, "target": "torch.randint(0, words, (tokens,))"},
        "F.cross_entropy(x, target)",
        "cross_entropy_forward(x.clone(), target, None, -100, 0.0, 0.0, 'mean', None, False)[0]",
        before=TANH + DEVICE + "\nMAX_FUSED_SIZE = 65536 // 2\n",
        wrong=("n_cols=V,", "n_cols=V // 2,"),
    ),
    "liger_kl_div_bf16": Program(
        (
            HIP,
            Part(
                f"{OPS}/kl_div.py",
                f"get_num_warps {REDUCTIONS} _str_to_reduction_mode _kldiv_kernel_forward kldiv_forward_triton",
            ),
        ),
        "tokens, words = 64, 32000",
        {
            "predicted": "torch.log_softmax(torch.randn(tokens, words), -1).bfloat16()",
            "wanted": "torch.softmax(torch.randn(tokens, words), -1).bfloat16()",
        },
        "F.kl_div(predicted.float(), wanted.float(), reduction='batchmean')",
        "kldiv_forward_triton(predicted, wanted, False, 'batchmean', 1e-10)",
        before=DEVICE + "\nMAX_FUSED_SIZE = 65536 // 4\n",
    ),
    "liger_jsd": Program(
        Part(f"{OPS}/jsd.py", "_jsd_kernel"),
        "tokens, words = 64, 16000",
        {"x y": "torch.log_softmax(torch.randn(tokens, words), -1)"},
        """
        middle = torch.log(0.5 * x.exp() + 0.5 * y.exp())
        return (0.5 * y.exp() * (y - middle) + 0.5 * x.exp() * (x - middle)).sum() / x.shape[0]
        """,
        """
        loss, d = torch.empty_like(x), torch.empty_like(x)
        rows, columns = x.shape
        _jsd_kernel[(rows,)](
            x, x.stride(0), y, y.stride(0), loss, loss.stride(0), d, d.stride(0), loss, 0.5, rows, -100, columns,
            BLOCK_SIZE=min(65536, triton.next_power_of_2(columns)), HAS_LABEL=False,
        )
        return loss.sum()
        """,
    ),
    "liger_tv_distance": Program(
        (
            HIP,
            Part(
                f"{OPS}/tvd.py",
                f"MAX_FUSED_SIZE {REDUCTIONS} _str_to_reduction_mode get_num_warps _tv_distance_kernel "
                "tv_distance_forward_triton",
            ),
        ),
        "tokens, words = 64, 16000",
        {"p q": "torch.softmax(torch.randn(tokens, words), -1)"},
        "0.5 * (p - q).abs().sum() / p.shape[0]",
        "tv_distance_forward_triton(p, q, None, 'batchmean', -100, False)[0]",
    ),
    "liger_selective_log_softmax": Program(
        Part(f"{OPS}/grpo_loss.py", "_selective_log_softmax_kernel fused_selective_log_softmax"),
        "batch, tokens, words = 2, 32, 16000",
        {"logits": "torch.randn(batch, tokens + 1, words)", "chosen": "torch.randint(0, words, (batch, tokens))"},
        "torch.log_softmax(logits[:, :-1] / 0.9, -1).gather(-1, chosen[..., None])[..., 0]",
        "fused_selective_log_softmax(logits, chosen)",
        wrong=("LOGITS += off_b * (L + 1) * N", "LOGITS += off_b * L * N"),
    ),
    "liger_sparsemax": Program(
        (SETTINGS, Part(f"{OPS}/sparsemax.py", "_sparsemax_forward_kernel _sparsemax_forward")),
        "rows, columns = 512, 1024",
        {"x": "torch.randn(rows, columns)"},
        """
        z = x.sort(-1, descending=True).values
        total = z.cumsum(-1) - 1
        count = torch.arange(1, x.shape[-1] + 1, device=x.device)
        kept = (z * count > total).sum(-1, keepdim=True)
        return torch.clamp(x - total.gather(-1, kept - 1) / kept, min=0)
        """,
        "_sparsemax_forward(x, -1)[0]",
    ),
    "liger_poly_norm": Program(
        (SETTINGS, Part(f"{OPS}/poly_norm.py", "_poly_norm_forward_kernel poly_norm_forward")),
        "tokens, width = 256, 4096",
        {"x": "torch.randn(tokens, width)"},
        """
        def normed(y):
            return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)

        return self.weight[0] * normed(x**3) + self.weight[1] * normed(x**2) + self.weight[2] * normed(x) + self.bias
        """,
        "poly_norm_forward(x, self.weight, self.bias)[0]",
        parameters={"weight": "torch.ones(3) / 3", "bias": "torch.zeros(1)"},
        before=RSQRT + XPU,
    ),
    "liger_relu_squared_fp16": Program(
        (SETTINGS, Part(f"{OPS}/relu_squared.py", "_relu_squared_forward_kernel relu_squared_forward")),
        "tokens, width = 256, 8192",
        {"x": "torch.randn(tokens, width, dtype=torch.float16)"},
        "torch.relu(x) ** 2",
        "relu_squared_forward(x)",
    ),
    "liger_fused_add_rms_norm_bf16": Program(
        (
            SETTINGS,
            Part(
                f"{OPS}/fused_add_rms_norm.py",
                f"{CASTING} _fused_add_rms_norm_forward_kernel fused_add_rms_norm_forward",
            ),
        ),
        "tokens, width = 256, 4096",
        {"x residual": "torch.randn(tokens, width, dtype=torch.bfloat16)"},
        """
        s = x + residual
        y = s.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return [y.to(x.dtype) * self.weight, s]
        """,
        "return list(fused_add_rms_norm_forward(x, residual, self.weight, 1e-6, 0.0, 'llama')[:2])",
        parameters={"weight": "torch.ones(width, dtype=torch.bfloat16)"},
        before=RSQRT + XPU,
    ),
    "liger_dyt_autotuned": Program(
        Part(f"{OPS}/dyt.py", "_dyt_fwd_kernel liger_dyt_fwd"),
        "batch, tokens, width = 2, 128, 4096",
        {"x": "torch.randn(batch, tokens, width)"},
        "torch.tanh(x * self.alpha) * self.gamma + self.beta",
        "liger_dyt_fwd(x, self.alpha, self.gamma, self.beta)",
        parameters={"alpha": "torch.full((1,), 0.5)", "gamma": "torch.ones(width)", "beta": "torch.zeros(width)"},
        before=TANH,
    ),
    "liger_embedding_fp16": Program(
        Part(f"{OPS}/experimental/embedding.py", "embedding_forward_kernel"),
        "batch, tokens, words, width = 2, 256, 16000, 512",
        {"table": "torch.randn(words, width, dtype=torch.float16)", "ids": "torch.randint(0, words, (batch, tokens))"},
        "F.embedding(ids, table)",
        """
        count, width = ids.numel(), table.shape[1]
        out = torch.empty(*ids.shape, width, dtype=table.dtype, device=table.device)
        grid = (triton.cdiv(count, 64), triton.cdiv(width, 128))
        embedding_forward_kernel[grid](table, ids, out, count, embedding_dim=width, BLOCK_SIZE_M=64, BLOCK_SIZE_N=128)
        return out
        """,
        wrong=("triton.cdiv(count, 64)", "(count - 1) // 64"),
    ),
    "liger_group_norm": Program(
        Part(f"{OPS}/group_norm.py", "_group_norm_forward_kernel group_norm_forward"),
        "batch, channels, height = 4, 128, 32",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.group_norm(x, 8, self.weight, self.bias, 1e-5)",
        "group_norm_forward(x, x.shape[1], 8, self.weight, self.bias, 1e-5)[0]",
        parameters={"weight": "torch.ones(channels)", "bias": "torch.zeros(channels)"},
        before=RSQRT + "\nMAX_FUSED_SIZE = 65536\n",
        wrong=("x.shape[1], 8, self.weight", "x.shape[1], 4, self.weight"),
    ),
    "liger_softmax_backward": Program(
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
    "liger_swiglu_backward_bf16": Program(
        (
            SETTINGS,
            Part(
                f"{OPS}/swiglu.py",
                "_SWIGLU_TILE _SWIGLU_TILE_MIN_BLOCK _should_tile _swiglu_tile_settings silu _swiglu_backward_kernel "
                "_swiglu_backward_kernel_tiled swiglu_backward",
            ),
        ),
        "tokens, width = 2048, 5632",
        {"a b dc": "torch.randn(tokens, width, dtype=torch.bfloat16)"},
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
    "liger_geglu_backward": Program(
        (SETTINGS, Part(f"{OPS}/geglu.py", "_geglu_tanh_backward_kernel geglu_backward")),
        "tokens, width = 1024, 4096",
        {"a b dc": "torch.randn(tokens, width)"},
        """
        da = torch.ops.aten.gelu_backward(dc * b, a, approximate="tanh")
        return [da, dc * F.gelu(a, approximate="tanh")]
        """,
        "return list(geglu_backward(a.clone(), b.clone(), dc))",
        before=TANH,
        changes=CONTEXT,
    ),
    "liger_rms_norm_backward": Program(
        (SETTINGS, TYPES, Part(f"{OPS}/rms_norm.py", RMS)),
        "tokens, width = 4096, 2048",
        {"dy x": "torch.randn(tokens, width)"},
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
        parameters={"weight": "torch.randn(width)"},
        before=RSQRT + XPU + NPU,
        changes=CONTEXT + CORES,
    ),
    "liger_layer_norm_backward": Program(
        (SETTINGS, Part(f"{OPS}/layer_norm.py", "_layer_norm_backward_kernel layer_norm_backward")),
        "tokens, width = 2048, 3072",
        {"dy x": "torch.randn(tokens, width)"},
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
        parameters={"weight": "torch.ones(width)", "bias": "torch.zeros(width)"},
        before=RSQRT + XPU + NPU,
        changes=CORES,
        wrong=("c2 = tl.sum(wdy, axis=0) / n_cols", "c2 = tl.sum(dy_f32, axis=0) / n_cols * 0"),
    ),
    "liger_dyt_backward_autotuned": Program(
        Part(f"{OPS}/dyt.py", "_dyt_bwd_kernel"),
        "tokens, width = 1024, 4096",
        {"dy x": "torch.randn(tokens, width)"},
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
        decorator=tuned("N", "BLOCK_N num_warps", (1024, 4), (2048, 8), reset_to_zero=["DA"]),
        parameters={"alpha": "torch.full((1,), 0.5)", "gamma": "torch.randn(width)"},
        before=TANH,
    ),
    "liger_sparsemax_backward": Program(
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
    "liger_group_norm_backward": Program(
        Part(f"{OPS}/group_norm.py", "_group_norm_backward_kernel group_norm_backward"),
        "batch, channels, height = 8, 64, 64",
        {"dy x": "torch.randn(batch, channels, height, height)"},
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
        parameters={"weight": "torch.randn(channels)", "bias": "torch.zeros(channels)"},
        before=RSQRT + "\nMAX_FUSED_SIZE = 65536\n",
    ),
    "liger_llama4_rope_bf16": Program(
        Part(
            f"{OPS}/llama4_rope.py", "_cast_and_contiguous _llama4_rope_kernel _select_kernel_meta llama4_rope_forward"
        ),
        "batch, tokens, heads, kv_heads, width = 1, 2048, 32, 8, 128",
        {
            "q": "torch.randn(batch, tokens, heads, width, dtype=torch.bfloat16)",
            "k": "torch.randn(batch, tokens, kv_heads, width, dtype=torch.bfloat16)",
            "angles": "torch.rand(tokens, width // 2) * 6.28",
        },
        """
        cos, sin = [y[None, :, None] for y in (angles.cos(), angles.sin())]
        found = []
        for x in (q, k):
            real, other = x.float().unflatten(-1, (-1, 2)).unbind(-1)
            turned = torch.stack((real * cos - other * sin, real * sin + other * cos), -1)
            found.append(turned.flatten(-2).to(x.dtype))
        return found
        """,
        """
        angles = torch.stack((angles.cos(), angles.sin()), -1)
        return list(llama4_rope_forward(q.clone(), k.clone(), angles))
        """,
    ),
    "liger_mrope": Program(
        Part(f"{OPS}/qwen2vl_mrope.py", "_triton_qwen2vl_mrope qwen2vl_mrope_forward"),
        "batch, tokens, heads, kv_heads, width = 1, 2048, 16, 4, 128",
        {
            "q": "torch.randn(batch, heads, tokens, width)",
            "k": "torch.randn(batch, kv_heads, tokens, width)",
            "angles": "torch.rand(3, batch, tokens, width // 2) * 6.28",
        },
        """
        angles = torch.cat([x[i] for i, x in enumerate(angles.split([16, 24, 24], -1))], -1)[:, None]
        cos, sin = angles.cos(), angles.sin()
        found = []
        for x in (q, k):
            first, second = x.chunk(2, -1)
            found.append(torch.cat((first * cos - second * sin, second * cos + first * sin), -1))
        return found
        """,
        """
        angles = torch.cat((angles, angles), -1)
        q, k = q.transpose(1, 2).clone().transpose(1, 2), k.transpose(1, 2).clone().transpose(1, 2)
        return [x.contiguous() for x in qwen2vl_mrope_forward(q, k, angles.cos(), angles.sin(), [16, 24])[:2]]
        """,
        wrong=("angles.sin(), [16, 24])", "angles.sin(), [24, 16])"),
    ),
    "liger_modulated_rms_norm_fp16": Program(
        (
            SETTINGS,
            Part(
                f"{OPS}/modulated_rms_norm.py",
                f"{CASTING} _modulated_rms_norm_forward_kernel _check_modulation_shape modulated_rms_norm_forward",
            ),
        ),
        "batch, tokens, width = 4, 1024, 3072",
        {"x": "torch.randn(batch, tokens, width).half()", "scale shift": "torch.randn(batch, 1, width).half()"},
        """
        y = x.float()
        y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
        return y * (1 + scale) + shift
        """,
        "modulated_rms_norm_forward(x, self.weight, scale, shift, 1e-6, 0.0, 'llama')[0]",
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
        before=RSQRT + XPU,
        wrong=("row_idx // rows_per_modulation", "row_idx // rows_per_modulation * 0"),
    ),
    "liger_mhc_product_and_norm_bf16": Program(
        Part(f"{OPS}/mhc.py", "_mhc_mm_norm_fwd_kernel mhc_mm_norm_fwd"),
        "tokens, width = 1024, 4 * 2048",
        {
            "x": "torch.randn(tokens, width, dtype=torch.bfloat16)",
            "phi": "torch.randn(width, 24, dtype=torch.bfloat16)",
        },
        "(x.float() @ phi.float()) * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)",
        "mhc_mm_norm_fwd(x, phi, 1e-6)[0]",
    ),
    "liger_mhc_sinkhorn": Program(
        Part(f"{OPS}/mhc.py", "_mhc_split_sinkhorn_fwd_kernel mhc_split_sinkhorn_fwd"),
        "tokens, streams = 8192, 4",
        {
            "mix": "torch.randn(tokens, streams * streams + 2 * streams)",
            "bias": "torch.randn(streams * streams + 2 * streams)",
            "scales": "torch.rand(3, 1)",
        },
        """
        pre = torch.sigmoid(mix[:, :4] * scales[0] + bias[:4]) + 1e-4
        post = 2 * torch.sigmoid(mix[:, 4:8] * scales[1] + bias[4:8])
        y = torch.softmax((mix[:, 8:] * scales[2] + bias[8:]).reshape(-1, 4, 4), -1) + 1e-6
        y = y / (y.sum(1, keepdim=True) + 1e-6)
        for _ in range(9):
            y = y / (y.sum(2, keepdim=True) + 1e-6)
            y = y / (y.sum(1, keepdim=True) + 1e-6)
        return [pre, post, y]
        """,
        """
        return list(mhc_split_sinkhorn_fwd(
            mix, bias, *scales, tmax=10, pre_eps=1e-4, sinkhorn_eps=1e-6, post_mult=2.0
        ))
        """,
        wrong=("tl.static_range(0, TMAX - 1)", "tl.static_range(0, 1)"),
    ),
    "liger_mhc_post_residual": Program(
        Part(f"{OPS}/mhc.py", "_post_res_default_meta _post_res_meta _mhc_post_res_fwd_kernel mhc_post_res_fwd"),
        "tokens, streams, width = 2048, 4, 2048",
        {
            "x": "torch.randn(tokens, streams, width)",
            "f": "torch.randn(tokens, width)",
            "post": "torch.rand(tokens, streams)",
            "res": "torch.rand(tokens, streams, streams)",
        },
        "torch.bmm(res, x) + post[..., None] * f[:, None]",
        "mhc_post_res_fwd(x, f, post, res)",
    ),
    "liger_attention_residuals_bf16": Program(
        Part(f"{OPS}/attn_res.py", "_attn_res_fwd_kernel _next_pow2 _get_max_blocks attn_res_forward"),
        "blocks, batch, tokens, width = 8, 1, 1024, 2048",
        {"x": "torch.randn(blocks, batch, tokens, width, dtype=torch.bfloat16)"},
        """
        y = x.float()
        y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
        shares = torch.softmax((y.float() * self.query.float()).sum(-1), 0)
        return (shares[..., None] * x.float()).sum(0).to(x.dtype)
        """,
        "attn_res_forward(x, self.query, self.weight)[0]",
        parameters={
            "weight": "torch.ones(width, dtype=torch.bfloat16)",
            "query": "torch.randn(width, dtype=torch.bfloat16) / 32",
        },
        wrong=("h += a_i * v", "h += v / n_blocks"),
    ),
    "liger_linear_cross_entropy": Program(
        (HIP, Part(f"{OPS}/cross_entropy.py", "LOG2_E liger_cross_entropy_kernel")),
        "tokens, width, words = 1024, 1024, 32000",
        {"x": "torch.randn(tokens, width)", "target": "torch.randint(0, words, (tokens,))"},
        "F.cross_entropy(x @ self.weight.T, target)",
        """
        losses, words = torch.empty(x.shape[0], device=x.device), self.weight.shape[0]
        chunk = triton.cdiv(x.shape[0], 4)
        for start in range(0, x.shape[0], chunk):
            logits = x[start : start + chunk] @ self.weight.T
            liger_cross_entropy_kernel[(logits.shape[0],)](
                X_ptr=logits, X_stride=logits.stride(0), Y_ptr=target[start:], Y_stride=1, weight_ptr=None,
                loss_ptr=losses[start:], z_loss_ptr=None, loss_stride=1, token_accuracy_ptr=None,
                token_accuracy_stride=0, predicted_tokens_ptr=None, predicted_tokens_stride=0, n_cols=words,
                n_non_ignore=x.shape[0], sum_non_ignore_weight=x.shape[0], weight_sum=0.0, ignore_index=-100,
                lse_square_scale=0.0, label_smoothing=0.0, reduction="mean", softcap=None, RETURN_Z_LOSS=False,
                RETURN_TOKEN_ACCURACY=False, RETURN_PREDICTED_TOKENS=False, HAS_WEIGHT=False, HAS_SOFTCAPPING=False,
                HAS_GRADIENTS=False, BLOCK_SIZE=32768, num_warps=32,
            )
        return losses.sum()
        """,
        parameters={"weight": "torch.randn(words, width) / width**0.5"},
        before=TANH + DEVICE,
    ),
}
