# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of liger-kernel: losses, rarer norms and activations."""

from tests.published.liger import DEVICE, OPS, RSQRT, SETTINGS, TANH, XPU
from tests.published.packages import Part
from tests.published.program import Program

REDUCTIONS = "_REDUCTION_MODE_NONE _REDUCTION_MODE_SUM _REDUCTION_MODE_MEAN _REDUCTION_MODE_BATCHMEAN"
CASTING = "_CASTING_MODE_NONE _CASTING_MODE_LLAMA _CASTING_MODE_GEMMA _str_to_casting_mode"
LOGITS = "torch.randn(tokens, words)"

PROGRAMS = [
    Program(
        "liger_cross_entropy",
        (
            Part(f"{OPS}/utils.py", "is_hip"),
            Part(f"{OPS}/cross_entropy.py", "LOG2_E liger_cross_entropy_kernel cross_entropy_forward"),
        ),
        "tokens, words = 128, 32000",
        {"x": LOGITS, "target": "torch.randint(0, words, (tokens,))"},
        "F.cross_entropy(x, target)",
        "cross_entropy_forward(x.clone(), target, None, -100, 0.0, 0.0, 'mean', None, False)[0]",
        before=TANH + DEVICE + "\nMAX_FUSED_SIZE = 65536 // 2\n",
        wrong=("n_cols=V,", "n_cols=V // 2,"),
    ),
    Program(
        "liger_kl_div_bf16",
        (
            Part(f"{OPS}/utils.py", "is_hip"),
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
    Program(
        "liger_jsd",
        (Part(f"{OPS}/jsd.py", "_jsd_kernel"),),
        "tokens, words = 64, 16000",
        {key: "torch.log_softmax(torch.randn(tokens, words), -1)" for key in ("x", "y")},
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
    Program(
        "liger_tv_distance",
        (
            Part(f"{OPS}/utils.py", "is_hip"),
            Part(
                f"{OPS}/tvd.py",
                f"MAX_FUSED_SIZE {REDUCTIONS} _str_to_reduction_mode get_num_warps _tv_distance_kernel "
                "tv_distance_forward_triton",
            ),
        ),
        "tokens, words = 64, 16000",
        {key: "torch.softmax(torch.randn(tokens, words), -1)" for key in ("p", "q")},
        "0.5 * (p - q).abs().sum() / p.shape[0]",
        "tv_distance_forward_triton(p, q, None, 'batchmean', -100, False)[0]",
    ),
    Program(
        "liger_selective_log_softmax",
        (Part(f"{OPS}/grpo_loss.py", "_selective_log_softmax_kernel fused_selective_log_softmax"),),
        "batch, tokens, words = 2, 32, 16000",
        {
            "logits": "torch.randn(batch, tokens + 1, words)",
            "chosen": "torch.randint(0, words, (batch, tokens))",
        },
        "torch.log_softmax(logits[:, :-1] / 0.9, -1).gather(-1, chosen[..., None])[..., 0]",
        "fused_selective_log_softmax(logits, chosen)",
        wrong=("LOGITS += off_b * (L + 1) * N", "LOGITS += off_b * L * N"),
    ),
    Program(
        "liger_sparsemax",
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
    Program(
        "liger_poly_norm",
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
    Program(
        "liger_relu_squared_fp16",
        (SETTINGS, Part(f"{OPS}/relu_squared.py", "_relu_squared_forward_kernel relu_squared_forward")),
        "tokens, width = 256, 8192",
        {"x": "torch.randn(tokens, width, dtype=torch.float16)"},
        "torch.relu(x) ** 2",
        "relu_squared_forward(x)",
    ),
    Program(
        "liger_fused_add_rms_norm_bf16",
        (
            SETTINGS,
            Part(
                f"{OPS}/fused_add_rms_norm.py",
                f"{CASTING} _fused_add_rms_norm_forward_kernel fused_add_rms_norm_forward",
            ),
        ),
        "tokens, width = 256, 4096",
        {key: "torch.randn(tokens, width, dtype=torch.bfloat16)" for key in ("x", "residual")},
        """
        s = x + residual
        y = s.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return [y.to(x.dtype) * self.weight, s]
        """,
        "return list(fused_add_rms_norm_forward(x, residual, self.weight, 1e-6, 0.0, 'llama')[:2])",
        init={"width": "width"},
        parameters={"weight": "torch.ones(width, dtype=torch.bfloat16)"},
        before=RSQRT + XPU,
    ),
    Program(
        "liger_dyt_autotuned",
        (Part(f"{OPS}/dyt.py", "_dyt_fwd_kernel liger_dyt_fwd"),),
        "batch, tokens, width = 2, 128, 4096",
        {"x": "torch.randn(batch, tokens, width)"},
        "torch.tanh(x * self.alpha) * self.gamma + self.beta",
        "liger_dyt_fwd(x, self.alpha, self.gamma, self.beta)",
        init={"width": "width"},
        parameters={"alpha": "torch.full((1,), 0.5)", "gamma": "torch.ones(width)", "beta": "torch.zeros(width)"},
        before=TANH,
    ),
    Program(
        "liger_embedding_fp16",
        (Part(f"{OPS}/experimental/embedding.py", "embedding_forward_kernel"),),
        "batch, tokens, words, width = 2, 256, 16000, 512",
        {
            "table": "torch.randn(words, width, dtype=torch.float16)",
            "ids": "torch.randint(0, words, (batch, tokens))",
        },
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
    Program(
        "liger_group_norm",
        (Part(f"{OPS}/group_norm.py", "_group_norm_forward_kernel group_norm_forward"),),
        "batch, channels, height = 4, 128, 32",
        {"x": "torch.randn(batch, channels, height, height)"},
        "F.group_norm(x, 8, self.weight, self.bias, 1e-5)",
        "group_norm_forward(x, x.shape[1], 8, self.weight, self.bias, 1e-5)[0]",
        init={"channels": "channels"},
        parameters={"weight": "torch.ones(channels)", "bias": "torch.zeros(channels)"},
        before=RSQRT + "\nMAX_FUSED_SIZE = 65536\n",
        wrong=("x.shape[1], 8, self.weight", "x.shape[1], 4, self.weight"),
    ),
]
