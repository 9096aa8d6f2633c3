# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of conch-triton-kernels."""

from tests.published.packages import Part
from tests.published.program import Program

KERNELS = "conch/kernels"
INT8 = Part(f"{KERNELS}/quantization/int8.py", "_static_scaled_int8_quant_kernel static_scaled_int8_quant_launcher")
SILU = Part(f"{KERNELS}/activation/silu_and_mul.py", "_silu_and_mul_kernel silu_and_mul_launcher")

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
]
