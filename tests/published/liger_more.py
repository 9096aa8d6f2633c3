# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of liger-kernel: positions, hyper-connections, modulated norms, larger losses."""

from tests.published.liger import DEVICE, OPS, RSQRT, SETTINGS, TANH, XPU
from tests.published.liger_losses import CASTING
from tests.published.packages import Part
from tests.published.program import Program

PROGRAMS = [
    Program(
        "liger_llama4_rope_bf16",
        (
            Part(
                f"{OPS}/llama4_rope.py",
                "_cast_and_contiguous _llama4_rope_kernel _select_kernel_meta llama4_rope_forward",
            ),
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
    Program(
        "liger_mrope",
        (Part(f"{OPS}/qwen2vl_mrope.py", "_triton_qwen2vl_mrope qwen2vl_mrope_forward"),),
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
    Program(
        "liger_modulated_rms_norm_fp16",
        (
            SETTINGS,
            Part(
                f"{OPS}/modulated_rms_norm.py",
                f"{CASTING} _modulated_rms_norm_forward_kernel _check_modulation_shape modulated_rms_norm_forward",
            ),
        ),
        "batch, tokens, width = 4, 1024, 3072",
        {
            "x": "torch.randn(batch, tokens, width).half()",
            "scale": "torch.randn(batch, 1, width).half()",
            "shift": "torch.randn(batch, 1, width).half()",
        },
        """
        y = x.float()
        y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
        return y * (1 + scale) + shift
        """,
        "modulated_rms_norm_forward(x, self.weight, scale, shift, 1e-6, 0.0, 'llama')[0]",
        init={"width": "width"},
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
        before=RSQRT + XPU,
        wrong=("row_idx // rows_per_modulation", "row_idx // rows_per_modulation * 0"),
    ),
    Program(
        "liger_mhc_product_and_norm_bf16",
        (Part(f"{OPS}/mhc.py", "_mhc_mm_norm_fwd_kernel mhc_mm_norm_fwd"),),
        "tokens, width = 1024, 4 * 2048",
        {
            "x": "torch.randn(tokens, width, dtype=torch.bfloat16)",
            "phi": "torch.randn(width, 24, dtype=torch.bfloat16)",
        },
        "(x.float() @ phi.float()) * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)",
        "mhc_mm_norm_fwd(x, phi, 1e-6)[0]",
    ),
    Program(
        "liger_mhc_sinkhorn",
        (Part(f"{OPS}/mhc.py", "_mhc_split_sinkhorn_fwd_kernel mhc_split_sinkhorn_fwd"),),
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
    Program(
        "liger_mhc_post_residual",
        (
            Part(
                f"{OPS}/mhc.py",
                "_post_res_default_meta _post_res_meta _mhc_post_res_fwd_kernel mhc_post_res_fwd",
            ),
        ),
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
    Program(
        "liger_attention_residuals_bf16",
        (Part(f"{OPS}/attn_res.py", "_attn_res_fwd_kernel _next_pow2 _get_max_blocks attn_res_forward"),),
        "blocks, batch, tokens, width = 8, 1, 1024, 2048",
        {"x": "torch.randn(blocks, batch, tokens, width, dtype=torch.bfloat16)"},
        """
        y = x.float()
        y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
        shares = torch.softmax((y.float() * self.query.float()).sum(-1), 0)
        return (shares[..., None] * x.float()).sum(0).to(x.dtype)
        """,
        "attn_res_forward(x, self.query, self.weight)[0]",
        init={"width": "width"},
        parameters={
            "weight": "torch.ones(width, dtype=torch.bfloat16)",
            "query": "torch.randn(width, dtype=torch.bfloat16) / 32",
        },
        wrong=("h += a_i * v", "h += v / n_blocks"),
    ),
    Program(
        "liger_linear_cross_entropy",
        (
            Part(f"{OPS}/utils.py", "is_hip"),
            Part(f"{OPS}/cross_entropy.py", "LOG2_E liger_cross_entropy_kernel"),
        ),
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
        init={"width": "width", "words": "words"},
        parameters={"weight": "torch.randn(words, width) / width**0.5"},
        before=TANH + DEVICE,
    ),
]
