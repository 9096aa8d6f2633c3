# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of fla-core: recurrences, convolutions, gates, losses."""

from tests.published.fla import CACHE, OP, OPS
from tests.published.packages import Part
from tests.published.program import Program

HALF = {key: "torch.randn(batch, tokens, heads, width, dtype=torch.bfloat16)" for key in "qkv"}

PROGRAMS = [
    Program(
        "fla_token_shift_bf16",
        (
            Part(
                "fla/modules/token_shift.py",
                "token_shift_fwd_kernel_short",
                {
                    "token_shift_fwd_kernel_short": "@triton.heuristics({'IS_VARLEN': lambda args: args['cu_seqlens'] "
                    "is not None, 'USE_INITIAL_STATE': lambda args: args['cache'] is not None})\n"
                    "@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (2, 4, 8)], key=['BD'])"
                },
            ),
        ),
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
        wrong=("is_first_pos = (g_t == 0)", "is_first_pos = (g_t == 1)"),
    ),
    Program(
        "fla_short_convolution_bf16",
        (
            Part(
                "fla/modules/causal_conv1d/ops.py",
                "causal_conv1d_fwd_kernel",
                {
                    "causal_conv1d_fwd_kernel": "@triton.heuristics({key: (lambda args, name=name: args[name] is not "
                    "None) for key, name in (('HAS_WEIGHT', 'weight'), ('HAS_BIAS', 'bias'), ('HAS_RESIDUAL', "
                    "'residual'), ('USE_INITIAL_STATE', 'initial_state'), ('IS_VARLEN', 'cu_seqlens'))})\n"
                    "@triton.autotune(configs=[triton.Config({'BD': b}, num_warps=4) for b in (32, 64)], key=['D'])"
                },
            ),
        ),
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
        init={"width": "width"},
        parameters={"weight": "torch.randn(width, 4, dtype=torch.bfloat16)"},
        wrong=("o_w == (i_w + W - 1)", "o_w == -i_w"),
    ),
    Program(
        "fla_fused_recurrent_retention",
        (OP, Part(f"{OPS}/common/fused_recurrent.py", "fused_recurrent_fwd_kernel")),
        "batch, tokens, heads, width = 2, 256, 8, 64",
        {key: "torch.randn(batch, tokens, heads, width)" for key in "qkv"},
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
    Program(
        "fla_fused_recurrent_delta_rule",
        (Part(f"{OPS}/delta_rule/fused_recurrent.py", "fused_recurrent_delta_rule_fwd_kernel"),),
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
    Program(
        "fla_rwkv4",
        (
            OP,
            Part(
                f"{OPS}/rwkv4/fused_recurrent.py",
                "get_block_size_c fused_recurrent_rwkv4_forward_kernel fused_recurrent_rwkv4_forward",
            ),
        ),
        "batch, tokens, width = 8, 256, 1024",
        {
            "k": "torch.randn(batch, tokens, width)",
            "v": "torch.randn(batch, tokens, width)",
            "state": "torch.rand(batch, 3, 1, width)",
        },
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
        init={"width": "width"},
        parameters={"w": "-torch.rand(width)", "u": "torch.randn(width)"},
        before="from torch import Tensor\n",
        wrong=("w_eps = w + eps", "w_eps = w"),
    ),
    Program(
        "fla_chunk_cumsum_autotuned",
        (
            OP,
            Part(
                f"{OPS}/utils/cumsum.py",
                "chunk_local_cumsum_vector_kernel",
                {
                    "chunk_local_cumsum_vector_kernel": "@triton.heuristics({'HAS_SCALE': lambda args: args['scale'] "
                    "is not None, 'IS_VARLEN': lambda args: args['cu_seqlens'] is not None})\n@triton.autotune("
                    "configs=[triton.Config({'BS': b}, num_warps=w) for b in (32, 64) for w in (2, 4)], key=['S'])"
                },
            ),
        ),
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
        wrong=("REVERSE=False\n", "REVERSE=True\n"),
    ),
    Program(
        "fla_scaled_dot_kkt_bf16",
        (
            OP,
            Part(
                f"{OPS}/common/chunk_scaled_dot_kkt.py",
                "chunk_scaled_dot_kkt_fwd_kernel",
                {
                    "chunk_scaled_dot_kkt_fwd_kernel": "@triton.heuristics({'USE_G': lambda args: args['g'] is not "
                    "None, 'IS_VARLEN': lambda args: args['cu_seqlens'] is not None})\n@triton.autotune(configs=["
                    "triton.Config({'BK': b}, num_warps=w) for b, w in ((32, 2), (64, 4), (128, 8))], key=['K'])"
                },
            ),
        ),
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
        wrong=("(o_t[:, None] > o_t[None, :]) &", "(o_t[:, None] >= o_t[None, :]) &"),
    ),
    Program(
        "fla_cross_entropy",
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
    Program(
        "fla_sinkhorn",
        (
            Part(f"{OPS}/utils/constant.py", "RCP_LN2"),
            Part(f"{OPS}/utils/sinkhorn/ops.py", "sinkhorn_fwd_kernel"),
        ),
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
    Program(
        "fla_solve_triangles",
        (
            Part(
                f"{OPS}/utils/solve_tril.py",
                "solve_tril_16x16_kernel",
                {
                    "solve_tril_16x16_kernel": "@triton.heuristics({'IS_VARLEN': lambda args: args['cu_seqlens'] is "
                    "not None})\n@triton.autotune(configs=[triton.Config({'DOT_PRECISION': 'ieee'}, num_warps=w) "
                    "for w in (1, 2, 4)], key=['BT'])"
                },
            ),
        ),
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
        before="def make_tensor_descriptor(*_):\n    return None\n",
        wrong=("b_A += m_I", "b_A += m_I * 0.99"),
    ),
]
