# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of fla-core: norms, softmax, recurrences, chunks of linear attention, attention."""

from tests.published.packages import Part
from tests.published.program import Program

OPS = "fla/ops"
OP = Part(f"{OPS}/utils/op.py", "unflatten_program_id exp exp2 log log2")
CACHE = "autotune_cache_kwargs = {}\n"
WARPS = "@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (2, 4, 8)], key=['BT'])"
TOKENS = "batch, tokens, heads, width = 2, 512, 4, 64"
QKV = {key: "torch.randn(batch, tokens, heads, width, dtype=torch.bfloat16)" for key in "qkv"}


def chosen(first: str, *names: str) -> str:
    """The package's heuristics for optional tensors, with configurations of ours behind them."""
    rows = ", ".join(
        f"{key!r}: lambda args: args[{value!r}] is not None" for key, value in zip(names[::2], names[1::2], strict=True)
    )
    return f"@triton.heuristics({{{rows}}})\n@triton.autotune(configs=[{first}], key=['BT'])"


BLOCKS = "triton.Config({'BK': b, 'BV': b}, num_warps=w, num_stages=2) for b in (32, 64) for w in (2, 4)"

PROGRAMS = [
    Program(
        "fla_l2norm_autotuned",
        (
            Part(
                "fla/modules/norm/l2norm.py",
                "BT_LIST l2norm_fwd_kernel_row l2norm_fwd_kernel l2norm_fwd",
                {
                    "l2norm_fwd_kernel": "@triton.autotune(configs=[triton.Config({'BT': BT}, num_warps=num_warps) "
                    "for num_warps in [1, 2, 4, 8, 16] for BT in BT_LIST], key=['D', 'NB'])"
                },
            ),
        ),
        "batch, tokens, heads, width = 1, 512, 16, 128",
        {"x": "torch.randn(batch, tokens, heads, width)"},
        "x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)",
        "l2norm_fwd(x)[0]",
        before=CACHE + "NUM_WARPS_AUTOTUNE = [1, 2, 4, 8, 16, 32]\n",
        wrong=("eps: float = 1e-6", "eps: float = 1e-1"),
    ),
    Program(
        "fla_softmax_autotuned",
        (OP, Part(f"{OPS}/utils/softmax.py", "softmax_fwd_kernel softmax_fwd")),
        "rows, columns = 512, 2000",
        {"x": "torch.randn(rows, columns)"},
        "torch.softmax(x, -1)",
        "softmax_fwd(x)",
        before=CACHE + "NUM_WARPS_AUTOTUNE = [1, 2, 4, 8, 16, 32]\n",
    ),
    Program(
        "fla_logsumexp_bf16",
        (OP, Part(f"{OPS}/utils/logsumexp.py", "logsumexp_fwd_kernel logsumexp_fwd")),
        "rows, columns = 64, 32000",
        {"x": "torch.randn(rows, columns, dtype=torch.bfloat16)"},
        "torch.logsumexp(x.float(), -1)",
        "logsumexp_fwd(x)",
        before=CACHE,
        wrong=("D=D,", "D=D // 2,"),
    ),
    Program(
        "fla_logcumsumexp",
        (OP, Part(f"{OPS}/utils/logcumsumexp.py", "logcumsumexp_fwd_kernel")),
        "batch, tokens, width = 16, 512, 64",
        {"x": "torch.randn(batch, tokens, width)"},
        "torch.logcumsumexp(x, 1)",
        """
        out, (batch, tokens, width) = torch.empty_like(x), x.shape
        logcumsumexp_fwd_kernel[(batch,)](x, out, tokens, S=width)
        return out
        """,
        before=CACHE,
    ),
    Program(
        "fla_matmul_fp16_autotuned",
        (OP, Part(f"{OPS}/utils/matmul.py", "matmul_kernel leaky_relu sigmoid tanh relu matmul")),
        "rows, inner, columns = 256, 512, 512",
        {"a": "torch.randn(rows, inner).half()", "b": "torch.randn(inner, columns).half() / inner**0.5"},
        "F.leaky_relu(a @ b)",
        "matmul(a, b, 'leaky_relu')",
        before=CACHE,
    ),
    Program(
        "fla_hgrn_autotuned",
        (OP, Part(f"{OPS}/hgrn/fused_recurrent.py", "fused_recurrent_hgrn_fwd_kernel fused_recurrent_hgrn_fwd")),
        "batch, tokens, width = 4, 256, 512",
        {"x": "torch.randn(batch, tokens, width)", "g": "F.logsigmoid(torch.randn(batch, tokens, width))"},
        """
        state, found = torch.zeros_like(x[:, 0]), []
        for token in range(x.shape[1]):
            state = state * g[:, token].exp() + x[:, token]
            found.append(state)
        return torch.stack(found, 1)
        """,
        "fused_recurrent_hgrn_fwd(x, g)[0]",
        before=CACHE,
        wrong=("for _ in range(0, T):", "for _ in range(0, T - 1):"),
    ),
    Program(
        "fla_rotary_bf16",
        (Part("fla/modules/rotary/ops.py", "rotary_embedding_kernel"),),
        "batch, tokens, heads, width = 1, 512, 16, 128",
        {
            "x": "torch.randn(batch, tokens, heads, width, dtype=torch.bfloat16)",
            "angles": "torch.rand(tokens, width // 2) * 6.28",
        },
        """
        cos, sin = [y.bfloat16().float()[:, None] for y in (angles.cos(), angles.sin())]
        first, second = x.float().chunk(2, -1)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), -1).to(x.dtype)
        """,
        """
        (batch, tokens, heads, width), y = x.shape, torch.empty_like(x)
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        rotary_embedding_kernel[(triton.cdiv(tokens, 16), batch, heads)](
            x, cos, sin, y, None, None, 0, T=tokens, B=batch, H=heads, D=width, R=width // 2, TR=tokens, BT=16,
            BD=triton.next_power_of_2(width), IS_SEQLEN_OFFSETS_TENSOR=False, IS_VARLEN=False, INTERLEAVED=False,
            CONJUGATE=False,
        )
        return y
        """,
        before=CACHE + "NUM_WARPS_AUTOTUNE = [2, 4, 8]\n",
    ),
    Program(
        "fla_chunk_linear_attention_bf16",
        (
            OP,
            Part(
                f"{OPS}/common/chunk_h.py",
                "chunk_fwd_kernel_h",
                {
                    "chunk_fwd_kernel_h": chosen(
                        BLOCKS,
                        "USE_INITIAL_STATE",
                        "h0",
                        "STORE_FINAL_STATE",
                        "ht",
                        "USE_G",
                        "g",
                        "USE_G_GAMMA",
                        "g_gamma",
                        "USE_GK",
                        "gk",
                        "USE_GV",
                        "gv",
                        "IS_VARLEN",
                        "cu_seqlens",
                    )
                },
            ),
            Part(
                f"{OPS}/common/chunk_o.py",
                "chunk_fwd_kernel_o",
                {
                    "chunk_fwd_kernel_o": chosen(
                        BLOCKS, "USE_G", "g", "USE_G_GAMMA", "g_gamma", "IS_VARLEN", "cu_seqlens"
                    )
                },
            ),
        ),
        TOKENS,
        QKV,
        """
        q, k, v = [x.transpose(1, 2) for x in (q, k, v)]
        scores = (q @ k.transpose(-1, -2)).tril() * q.shape[-1] ** -0.5
        return (scores @ v).transpose(1, 2).contiguous()
        """,
        """
        batch, tokens, heads, width = q.shape
        chunks, o = triton.cdiv(tokens, 64), torch.empty_like(v)
        h = torch.empty(batch, chunks, heads, width, width, dtype=k.dtype, device=k.device)
        grid = lambda meta: (triton.cdiv(width, meta["BK"]) * triton.cdiv(width, meta["BV"]) * batch * heads,)
        chunk_fwd_kernel_h[grid](
            k, v, h, None, None, None, None, None, None, None, None, tokens, H=heads, K=width, V=width, BT=64, BS=64,
            STATE_V_FIRST=False,
        )
        grid = lambda meta: (triton.cdiv(width, meta["BV"]) * chunks, batch * heads)
        chunk_fwd_kernel_o[grid](
            q, k, v, h, None, None, o, None, None, width**-0.5, tokens, H=heads, HV=heads, K=width, V=width, BT=64,
            STATE_V_FIRST=False,
        )
        return o
        """,
        wrong=("m_A = (o_t[:, None] >= o_t[None, :])", "m_A = (o_t[:, None] > o_t[None, :])"),
    ),
    Program(
        "fla_attention_bf16",
        (OP, Part(f"{OPS}/attn/parallel.py", "parallel_attn_fwd_kernel")),
        "batch, tokens, heads, width = 1, 512, 8, 64",
        QKV,
        """
        q, k, v = [x.transpose(1, 2) for x in (q, k, v)]
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous()
        """,
        """
        batch, tokens, heads, width = q.shape
        o = torch.empty_like(v)
        lse = torch.empty(batch, tokens, heads, dtype=torch.float32, device=q.device)
        parallel_attn_fwd_kernel[(triton.cdiv(tokens, 64), batch * heads)](
            q, k, v, o, None, None, lse, width**-0.5, None, None, tokens, W=None, B=batch, H=heads, HQ=heads, G=1,
            K=width, V=width, BT=64, BS=32, BK=width, BV=width,
        )
        return o
        """,
    ),
    Program(
        "fla_mean_pooling_autotuned",
        (OP, Part(f"{OPS}/utils/pooling.py", "mean_pooling_fwd_kernel")),
        "batch, tokens, heads, width = 1, 2048, 8, 128",
        {"x": "torch.randn(batch, tokens, heads, width)"},
        "x.reshape(x.shape[0], -1, 64, x.shape[2], x.shape[3]).mean(2)",
        """
        batch, tokens, heads, width = x.shape
        chunks = triton.cdiv(tokens, 64)
        out = torch.empty(batch, chunks, heads, width, device=x.device)
        grid = lambda meta: (triton.cdiv(width, meta["BD"]) * chunks, batch * heads)
        mean_pooling_fwd_kernel[grid](x, out, None, None, tokens, H=heads, D=width, BT=64)
        return out
        """,
        before=CACHE,
    ),
    Program(
        "fla_swiglu_autotuned",
        (
            Part(
                "fla/modules/activations/ops.py",
                "swiglu_fwd_kernel",
                {
                    "swiglu_fwd_kernel": "@triton.autotune(configs=[triton.Config({'B': B}, num_warps=warps) "
                    "for B in (512, 1024, 2048) for warps in (4, 8)], key=['D'])"
                },
            ),
        ),
        "tokens, width = 512, 2816",
        {key: "torch.randn(tokens, width)" for key in "xy"},
        "F.silu(x) * y",
        """
        z, count, width = torch.empty_like(x), x.numel(), x.shape[-1]
        grid = lambda meta: (triton.cdiv(count, meta["B"]),)
        swiglu_fwd_kernel[grid](x, y, z, width, width, width, count, D=width)
        return z
        """,
    ),
]
