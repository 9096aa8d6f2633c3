# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of conch-triton-kernels."""

from tests.published.packages import Part
from tests.published.program import Program

KERNELS = "conch/kernels"
INT8 = Part(f"{KERNELS}/quantization/int8.py", "_static_scaled_int8_quant_kernel static_scaled_int8_quant_launcher")
SILU = Part(f"{KERNELS}/activation/silu_and_mul.py", "_silu_and_mul_kernel silu_and_mul_launcher")

PLATFORM = """
class current_platform:
    is_amd = staticmethod(lambda: False)
    is_nvidia = staticmethod(lambda: True)
"""

PROGRAMS = [
    Program(
        "conch_silu_and_mul",
        (SILU,),
        "tokens, width = 256, 4096",
        {"x": "torch.randn(tokens, 2 * width)"},
        "F.silu(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2 :]",
        """
        out = torch.empty(x.shape[0], x.shape[1] // 2, dtype=x.dtype, device=x.device)
        silu_and_mul_launcher(out, x)
        return out
        """,
        wrong=("input_stride=x.stride(-2)", "input_stride=x.stride(-2) // 2"),
    ),
    Program(
        "conch_int8_quant",
        (INT8,),
        "tokens, width = 256, 4096",
        {"x": "torch.randn(tokens, width)", "scale": "torch.rand(1) * 0.01 + 0.02"},
        "torch.clamp(x * (1 / scale), -128, 127).to(torch.int8)",
        """
        out = torch.empty_like(x, dtype=torch.int8)
        static_scaled_int8_quant_launcher(out, x, scale)
        return out
        """,
    ),
    Program(
        "conch_rms_norm_bf16",
        (Part(f"{KERNELS}/normalization/rms_norm.py", "_rms_norm_kernel rms_norm_launcher"),),
        "tokens, width = 512, 4096",
        {"x": "torch.randn(tokens, width, dtype=torch.bfloat16)"},
        """
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return y.to(x.dtype) * self.weight
        """,
        """
        out = torch.empty_like(x)
        rms_norm_launcher(out, x, self.weight, 1e-5)
        return out
        """,
        init={"width": "width"},
        parameters={"weight": "torch.ones(width, dtype=torch.bfloat16)"},
    ),
    Program(
        "conch_gelu_tanh_and_mul",
        (
            Part(
                f"{KERNELS}/activation/gelu_tanh_and_mul.py",
                "_M_2_SQRTPI _M_SQRT2 _gelu_tanh_and_mul_kernel gelu_tanh_and_mul_launcher",
            ),
        ),
        "tokens, width = 2048, 8192",
        {"x": "torch.randn(tokens, 2 * width)"},
        "F.gelu(x[:, : x.shape[1] // 2], approximate='tanh') * x[:, x.shape[1] // 2 :]",
        """
        out = torch.empty(x.shape[0], x.shape[1] // 2, dtype=x.dtype, device=x.device)
        gelu_tanh_and_mul_launcher(out, x)
        return out
        """,
        wrong=("kappa = 0.044715", "kappa = 0.054715"),
    ),
    Program(
        "conch_gemma_rms_norm_bf16",
        (
            Part(
                f"{KERNELS}/normalization/gemma_rms_norm.py",
                "_gemma_rms_norm_inplace_kernel gemma_rms_norm_inplace_launcher",
            ),
        ),
        "tokens, width = 4096, 3584",
        {"x": "torch.randn(tokens, width, dtype=torch.bfloat16)"},
        """
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight.float())
        return y.to(x.dtype)
        """,
        """
        y = x.clone()
        gemma_rms_norm_inplace_launcher(y, self.weight)
        return y
        """,
        init={"width": "width"},
        parameters={"weight": "torch.randn(width, dtype=torch.bfloat16) / 10"},
        wrong=("(1.0 + w)", "w"),
    ),
    Program(
        "conch_fused_add_rms_norm_fp16",
        (Part(f"{KERNELS}/normalization/rms_norm.py", "_rms_norm_kernel fused_add_rms_norm_launcher"),),
        "tokens, width = 4096, 4096",
        {key: "torch.randn(tokens, width).half()" for key in ("x", "residual")},
        """
        s = x + residual
        y = s.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return [y.to(x.dtype) * self.weight, s]
        """,
        """
        y, s = x.clone(), residual.clone()
        fused_add_rms_norm_launcher(y, s, self.weight, 1e-5)
        return [y, s]
        """,
        init={"width": "width"},
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
        wrong=("x += residual", "x -= residual"),
    ),
    Program(
        "conch_rotary_embedding",
        (Part(f"{KERNELS}/embedding/rotary_embedding.py", "_rotary_embedding_kernel rotary_embedding_launcher"),),
        "tokens, heads, kv_heads, width = 4096, 32, 8, 128",
        {
            "places": "torch.randperm(2 * tokens)[:tokens]",
            "q": "torch.randn(tokens, heads * width)",
            "k": "torch.randn(tokens, kv_heads * width)",
            "angles": "torch.rand(2 * tokens, width // 2) * 6.28",
        },
        """
        cos, sin = [y[places][:, None] for y in (angles.cos(), angles.sin())]
        found = []
        for x in (q, k):
            first, second = x.reshape(x.shape[0], -1, 128).chunk(2, -1)
            found.append(torch.cat((first * cos - second * sin, second * cos + first * sin), -1).reshape(x.shape))
        return found
        """,
        """
        q, k = q.clone(), k.clone()
        rotary_embedding_launcher(places, q, k, 128, torch.cat((angles.cos(), angles.sin()), -1))
        return [q, k]
        """,
        wrong=("pos * rot_dim", "token_idx * rot_dim"),
    ),
    Program(
        "conch_fp8_quant_bf16",
        (Part(f"{KERNELS}/quantization/fp8.py", "_static_scaled_fp8_quant_kernel static_scaled_fp8_quant_launcher"),),
        "tokens, width = 4096, 4096",
        {"x": "torch.randn(tokens, width, dtype=torch.bfloat16)", "scale": "torch.full((1,), 0.0625)"},
        "(x * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)",
        """
        out = torch.empty_like(x, dtype=torch.float8_e4m3fn)
        static_scaled_fp8_quant_launcher(out, x, scale)
        return out.view(torch.uint8)
        """,
        before=PLATFORM,
    ),
]
