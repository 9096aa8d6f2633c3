# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of fla-core: norms, softmax, recurrences, chunks, convolutions, attention, losses."""

from itertools import product

from benchmarks.published.packages import Part, heuristics, tuned
from benchmarks.published.program import Program

OPS = "fla/ops"
OP = Part(f"{OPS}/utils/op.py", "unflatten_program_id exp exp2 log log2")
CACHE = "autotune_cache_kwargs = {}\n"
NUM_WARPS = "NUM_WARPS_AUTOTUNE = [1, 2, 4, 8, 16, 32]\n"
ROWS = (
    "@triton.autotune(configs=[triton.Config({'BT': BT}, num_warps=num_warps) for num_warps in [1, 2, 4, 8, 16] "
    "for BT in BT_LIST], key=['D', 'NB'])"
)
BLOCKS = tuned("BT", "BK BV num_warps num_stages", (32, 32, 2, 2), (32, 32, 4, 2), (64, 64, 2, 2), (64, 64, 4, 2))


def optional(names: str = "") -> str:
    """A heuristic that says which optional tensors there are: lengths of sequences, and pairs KEY=argument."""
    pairs = (pair.split("=") for pair in ["IS_VARLEN=cu_seqlens", *names.split()])
    return heuristics(**{key: f"lambda args: args[{argument!r}] is not None" for key, argument in pairs}) + "\n"


PROGRAMS = {
    "fla_l2norm_autotuned": Program(
        Part("fla/modules/norm/l2norm.py", "BT_LIST l2norm_fwd_kernel_row l2norm_fwd l2norm_fwd_kernel"),
        "batch, tokens, heads, width = 1, 512, 16, 128",
        {"x": "torch.randn(batch, tokens, heads, width)"},
        "x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)",
        "l2norm_fwd(x)[0]",
        decorator=ROWS,
        before=CACHE + NUM_WARPS,
        wrong=("eps: float = 1e-6", "eps: float = 1e-1"),
    ),
    "fla_softmax_autotuned": Program(
        (OP, Part(f"{OPS}/utils/softmax.py", "softmax_fwd_kernel softmax_fwd")),
        "rows, columns = 512, 2000",
        {"x": "torch.randn(rows, columns)"},
        "torch.softmax(x, -1)",
        "softmax_fwd(x)",
        before=CACHE + NUM_WARPS,
    ),
    "fla_logsumexp_bf16": Program(
        (OP, Part(f"{OPS}/utils/logsumexp.py", "logsumexp_fwd_kernel logsumexp_fwd")),
        "rows, columns = 64, 32000",
        {"x": "torch.randn(rows, columns, dtype=torch.bfloat16)"},
        "torch.logsumexp(x.float(), -1)",
        "logsumexp_fwd(x)",
        before=CACHE,
        wrong=("D=D,", "D=D // 2,"),
    ),
    "fla_logcumsumexp": Program(
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
    "fla_matmul_fp16_autotuned": Program(
        (OP, Part(f"{OPS}/utils/matmul.py", "matmul_kernel leaky_relu sigmoid tanh relu matmul")),
        "rows, inner, columns = 256, 512, 512",
        {"a": "torch.randn(rows, inner).half()", "b": "torch.randn(inner, columns).half() / inner**0.5"},
        "F.leaky_relu(a @ b)",
        "matmul(a, b, 'leaky_relu')",
        before=CACHE,
    ),
    "fla_hgrn_autotuned": Program(
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
    "fla_rotary_bf16": Program(
        Part("fla/modules/rotary/ops.py", "rotary_embedding_kernel"),
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
    "fla_chunk_linear_attention_bf16": Program(
        (
            OP,
            Part(
                f"{OPS}/common/chunk_h.py",
                "chunk_fwd_kernel_h",
                optional("USE_INITIAL_STATE=h0 STORE_FINAL_STATE=ht USE_G=g USE_G_GAMMA=g_gamma USE_GK=gk USE_GV=gv")
                + BLOCKS,
            ),
            Part(f"{OPS}/common/chunk_o.py", "chunk_fwd_kernel_o", optional("USE_G=g USE_G_GAMMA=g_gamma") + BLOCKS),
        ),
        "batch, tokens, heads, width = 2, 512, 4, 64",
        {"q k v": "torch.randn(batch, tokens, heads, width, dtype=torch.bfloat16)"},
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
    "fla_attention_bf16": Program(
        (OP, Part(f"{OPS}/attn/parallel.py", "parallel_attn_fwd_kernel")),
        "batch, tokens, heads, width = 1, 512, 8, 64",
        {"q k v": "torch.randn(batch, tokens, heads, width, dtype=torch.bfloat16)"},
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
    "fla_mean_pooling_autotuned": Program(
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
    "fla_swiglu_autotuned": Program(
        Part("fla/modules/activations/ops.py", "swiglu_fwd_kernel"),
        "tokens, width = 512, 2816",
        {"x y": "torch.randn(tokens, width)"},
        "F.silu(x) * y",
        """
        z, count, width = torch.empty_like(x), x.numel(), x.shape[-1]
        grid = lambda meta: (triton.cdiv(count, meta["B"]),)
        swiglu_fwd_kernel[grid](x, y, z, width, width, width, count, D=width)
        return z
        """,
        decorator=tuned("D", "B num_warps", *product((512, 1024, 2048), (4, 8))),
    ),
    "fla_token_shift_bf16": Program(
        Part("fla/modules/token_shift.py", "token_shift_fwd_kernel_short"),
        "batch, tokens, width = 4, 2048, 2048",
        {"x": "torch.randn(batch, tokens, width, dtype=torch.bfloat16)"},
        "F.pad(x, (0, 0, 1, -1)) - x",
        """
        y, (batch, tokens, width) = torch.empty_like(x), x.shape
        token_shift_fwd_kernel_short[(batch, tokens)](
            x, y, None, None, None, tokens, D=width, BD=triton.next_power_of_2(width), STORE_FINAL_STATE=False,
            IS_DECODE=False,
        )
        return y
        """,
        decorator=optional("USE_INITIAL_STATE=cache") + tuned("BD", "num_warps", (2,), (4,), (8,)),
        wrong=("is_first_pos = (g_t == 0)", "is_first_pos = (g_t == 1)"),
    ),
    "fla_short_convolution_bf16": Program(
        Part("fla/modules/causal_conv1d/ops.py", "causal_conv1d_fwd_kernel"),
        "batch, tokens, width = 4, 2048, 2048",
        {"x": "torch.randn(batch, tokens, width, dtype=torch.bfloat16)"},
        """
        y = F.conv1d(x.float().transpose(1, 2), self.weight.float()[:, None], padding=3, groups=x.shape[2])
        return F.silu(y[..., : x.shape[1]]).transpose(1, 2).to(x.dtype)
        """,
        """
        (batch, tokens, width), y = x.shape, torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(width, meta["BD"]), triton.cdiv(tokens, 64), batch)
        causal_conv1d_fwd_kernel[grid](
            x, y, self.weight, None, None, None, None, None, batch, tokens, *x.stride(), D=width, W=4, BT=64, BW=4,
            ACTIVATION="silu",
        )
        return y
        """,
        decorator=optional("HAS_WEIGHT=weight HAS_BIAS=bias HAS_RESIDUAL=residual USE_INITIAL_STATE=initial_state")
        + tuned("D", "BD num_warps", (32, 4), (64, 4)),
        parameters={"weight": "torch.randn(width, 4, dtype=torch.bfloat16)"},
        wrong=("o_w == (i_w + W - 1)", "o_w == -i_w"),
    ),
    "fla_fused_recurrent_retention": Program(
        (OP, Part(f"{OPS}/common/fused_recurrent.py", "fused_recurrent_fwd_kernel")),
        "batch, tokens, heads, width = 2, 256, 8, 64",
        {"q k v": "torch.randn(batch, tokens, heads, width)"},
        """
        decay = (1 - 2.0 ** (-5 - torch.arange(q.shape[2], device=q.device)))[None, :, None, None]
        state, found = 0, []
        for token in range(q.shape[1]):
            state = state * decay + k[:, token, :, :, None] * v[:, token, :, None]
            found.append((q[:, token, :, :, None] * q.shape[-1] ** -0.5 * state).sum(-2))
        return torch.stack(found, 1)
        """,
        """
        (batch, tokens, heads, width), block = q.shape, min(32, triton.next_power_of_2(v.shape[-1]))
        gamma = (1 - 2.0 ** (-5 - torch.arange(heads, device=q.device))).log()
        o = torch.empty_like(v)
        fused_recurrent_fwd_kernel[(triton.cdiv(width, block) * batch * heads,)](
            q, k, v, None, gamma, None, None, o, None, None, None, width**-0.5, batch, tokens, H=heads, K=width,
            V=width, BK=triton.next_power_of_2(width), BV=block, REVERSE=False, USE_G=False, USE_G_GAMMA=True,
            USE_GK=False, USE_GV=False,
        )
        return o
        """,
        before=CACHE,
        wrong=("b_h = b_h * exp(b_g_gamma)", "b_h = b_h * b_g_gamma"),
    ),
    "fla_fused_recurrent_delta_rule": Program(
        Part(f"{OPS}/delta_rule/fused_recurrent.py", "fused_recurrent_delta_rule_fwd_kernel"),
        "batch, tokens, heads, width = 2, 256, 4, 64",
        {
            "q": "torch.randn(batch, tokens, heads, width)",
            "k": "F.normalize(torch.randn(batch, tokens, heads, width), dim=-1)",
            "v": "torch.randn(batch, tokens, heads, width)",
            "beta": "torch.rand(batch, tokens, heads)",
        },
        """
        state, found = torch.zeros_like(q[:, 0, :, :, None] * v[:, 0, :, None]), []
        for token in range(q.shape[1]):
            key, value = k[:, token, :, :, None], v[:, token, :, None]
            value = (value - (state * key).sum(-2, keepdim=True)) * beta[:, token, :, None, None]
            state = state + key * value
            found.append((q[:, token, :, :, None] * q.shape[-1] ** -0.5 * state).sum(-2))
        return torch.stack(found, 1)
        """,
        """
        (batch, tokens, heads, width), block = q.shape, 8
        o, u = torch.empty_like(v), torch.empty_like(v)
        fused_recurrent_delta_rule_fwd_kernel[(triton.cdiv(width, block) * batch * heads,)](
            q, k, v, u, beta, o, None, None, None, width**-0.5, tokens, B=batch, H=heads, K=width, V=width,
            BK=triton.next_power_of_2(width), BV=block, IS_BETA_HEADWISE=False, num_warps=1,
        )
        return o
        """,
        wrong=("b_v -= b_v_minus", "b_v -= 0.99 * b_v_minus"),
    ),
    "fla_rwkv4": Program(
        (
            OP,
            Part(
                f"{OPS}/rwkv4/fused_recurrent.py",
                "get_block_size_c fused_recurrent_rwkv4_forward_kernel fused_recurrent_rwkv4_forward",
            ),
        ),
        "batch, tokens, width = 8, 256, 1024",
        {"k v": "torch.randn(batch, tokens, width)", "state": "torch.rand(batch, 3, 1, width)"},
        """
        (alpha, beta, last), found = state[:, :, 0].unbind(1), []
        for token in range(k.shape[1]):
            key, value = k[:, token], v[:, token]
            most = torch.maximum(self.u + key, last)
            old, new = torch.exp(last - most), torch.exp(self.u + key - most)
            found.append((old * alpha + new * value) / (old * beta + new))
            most = torch.maximum(self.w + last, key)
            old, new = torch.exp(self.w + last - most), torch.exp(key - most)
            alpha, beta, last = old * alpha + new * value, old * beta + new, most
        return torch.stack(found, 1)
        """,
        "fused_recurrent_rwkv4_forward(self.w, self.u, k, v, state)[0]",
        parameters={"w": "-torch.rand(width)", "u": "torch.randn(width)"},
        before="from torch import Tensor\n",
        wrong=("w_eps = w + eps", "w_eps = w"),
    ),
    "fla_chunk_cumsum_autotuned": Program(
        (OP, Part(f"{OPS}/utils/cumsum.py", "chunk_local_cumsum_vector_kernel")),
        "batch, tokens, heads, width = 2, 4096, 8, 128",
        {"x": "torch.randn(batch, tokens, heads, width)"},
        "x.unflatten(1, (-1, 64)).cumsum(2).flatten(1, 2)",
        """
        (batch, tokens, heads, width), o = x.shape, torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(width, meta["BS"]) * triton.cdiv(tokens, 64), batch * heads)
        chunk_local_cumsum_vector_kernel[grid](
            x, o, None, None, None, tokens, B=batch, H=heads, S=width, BT=64, REVERSE=False
        )
        return o
        """,
        decorator=optional("HAS_SCALE=scale") + tuned("S", "BS num_warps", *product((32, 64), (2, 4))),
        wrong=("REVERSE=False\n", "REVERSE=True\n"),
    ),
    "fla_scaled_dot_kkt_bf16": Program(
        (OP, Part(f"{OPS}/common/chunk_scaled_dot_kkt.py", "chunk_scaled_dot_kkt_fwd_kernel")),
        "batch, tokens, heads, width = 2, 4096, 8, 128",
        {
            "k": "torch.randn(batch, tokens, heads, width, dtype=torch.bfloat16)",
            "beta": "torch.rand(batch, tokens, heads)",
        },
        """
        y = k.float().unflatten(1, (-1, 64)).transpose(2, 3)
        scores = (y @ y.transpose(-1, -2)).tril(-1) * beta.unflatten(1, (-1, 64)).transpose(2, 3)[..., None]
        return scores.transpose(2, 3).flatten(1, 2)
        """,
        """
        batch, tokens, heads, width = k.shape
        out = torch.empty(batch, tokens, heads, 64, device=k.device)
        chunk_scaled_dot_kkt_fwd_kernel[(triton.cdiv(tokens, 64), batch * heads)](
            k, None, beta, out, None, None, tokens, H=heads, HV=heads, K=width, BT=64
        )
        return out
        """,
        decorator=optional("USE_G=g") + tuned("K", "BK num_warps", (32, 2), (64, 4), (128, 8)),
        wrong=("(o_t[:, None] > o_t[None, :]) &", "(o_t[:, None] >= o_t[None, :]) &"),
    ),
    "fla_cross_entropy": Program(
        (OP, Part("fla/modules/fused_cross_entropy/ops.py", "cross_entropy_fwd_kernel")),
        "tokens, words = 1024, 32000",
        {"x": "torch.randn(tokens, words)", "target": "torch.randint(0, words, (tokens,))"},
        "F.cross_entropy(x, target, reduction='none')",
        """
        rows, words = x.shape
        loss, z, lse = [torch.empty(rows, device=x.device) for _ in range(3)]
        cross_entropy_fwd_kernel[(rows, 1)](
            x, target, loss, z, lse, x.stride(0), 0.0, 1.0, 0.0, None, -100, rows, V=words, V_TOTAL=words, V_START=0,
            BV=triton.next_power_of_2(words), SPLIT=False, num_warps=32,
        )
        return loss
        """,
        before="from triton.language.extra.libdevice import tanh\n",
        wrong=("b_loss += b_lse + b_z_loss", "b_loss += b_lse - b_max + b_z_loss"),
    ),
    "fla_sinkhorn": Program(
        (Part(f"{OPS}/utils/constant.py", "RCP_LN2"), Part(f"{OPS}/utils/sinkhorn/ops.py", "sinkhorn_fwd_kernel")),
        "tokens, streams = 16384, 8",
        {"x": "torch.randn(tokens, streams, streams)"},
        """
        for _ in range(5):
            x = torch.log_softmax(torch.log_softmax(x, 1), 2)
        return x.exp()
        """,
        """
        out, count = torch.empty_like(x), x.shape[1]
        sinkhorn_fwd_kernel[(x.shape[0],)](
            x, out, x.shape[0], scale=RCP_LN2, N=count, BN=triton.next_power_of_2(count), NUM_ITERS=5, num_warps=1
        )
        return out
        """,
        wrong=("NUM_ITERS=5", "NUM_ITERS=1"),
    ),
    "fla_solve_triangles": Program(
        Part(f"{OPS}/utils/solve_tril.py", "solve_tril_16x16_kernel"),
        "batch, tokens, heads = 4, 2048, 16",
        {"a": "torch.rand(batch, tokens, heads, 16) / 8"},
        """
        y = a.unflatten(1, (-1, 16)).transpose(2, 3).tril(-1)
        one = torch.eye(16, device=a.device)
        two = y @ y
        four = two @ two
        found = (one - y) @ (one + two) @ (one + four) @ (one + four @ four)
        return found.transpose(2, 3).flatten(1, 2)
        """,
        """
        out, (batch, tokens, heads, _) = torch.zeros_like(a), a.shape
        solve_tril_16x16_kernel[(triton.cdiv(tokens, 16), batch * heads)](
            a, out, None, None, tokens, H=heads, BT=16, USE_TMA=False
        )
        return out
        """,
        decorator=optional() + tuned("BT", "DOT_PRECISION num_warps", *product(("ieee",), (1, 2, 4))),
        before="def make_tensor_descriptor(*_):\n    return None\n",
        wrong=("b_A += m_I", "b_A += m_I * 0.99"),
    ),
}
