# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of liger-kernel: norms, activations, positions."""

from tests.published.packages import Part
from tests.published.program import Program

OPS = "liger_kernel/ops"
SETTINGS = Part(f"{OPS}/utils.py", "is_hip calculate_settings")
XPU = "def set_large_grf_mode(kernel_args):\n    kernel_args['grf_mode'] = 'large'\n"
RSQRT = "from triton.language.extra.libdevice import rsqrt\n"
TANH = "from triton.language.extra.libdevice import tanh\n"
CONTEXT = (("with device_context(", "with torch.cuda.device("),)
DEVICE = """
def infer_device_arch():
    return "hopper"

def infer_device():
    return "cuda"
"""

PROGRAMS = [
    Program(
        "liger_softmax",
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
    Program(
        "liger_swiglu_bf16",
        (
            SETTINGS,
            Part(
                f"{OPS}/swiglu.py",
                "_SWIGLU_TILE _SWIGLU_TILE_MIN_BLOCK _should_tile _swiglu_tile_settings silu _swiglu_forward_kernel "
                "_swiglu_forward_kernel_tiled swiglu_forward",
            ),
        ),
        "tokens, width = 512, 5632",
        {name: "torch.randn(tokens, width, dtype=torch.bfloat16)" for name in "ab"},
        "F.silu(a) * b",
        "swiglu_forward(a, b)[2]",
        before=DEVICE,
        changes=CONTEXT,
    ),
    Program(
        "liger_geglu",
        (SETTINGS, Part(f"{OPS}/geglu.py", "_geglu_tanh_forward_kernel geglu_forward")),
        "tokens, width = 128, 11008",
        {name: "torch.randn(tokens, width)" for name in "ab"},
        "F.gelu(a, approximate='tanh') * b",
        "geglu_forward(a, b)[2]",
        before=TANH,
        changes=CONTEXT,
    ),
    Program(
        "liger_rms_norm_llama_fp16",
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
        init={"width": "width"},
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
        before=RSQRT + XPU,
        changes=CONTEXT,
        wrong=("self.weight, 1e-6, 0.0", "self.weight, 1e-1, 0.0"),
    ),
    Program(
        "liger_layer_norm",
        (SETTINGS, Part(f"{OPS}/layer_norm.py", "_layer_norm_forward_kernel layer_norm_forward")),
        "batch, tokens, width = 2, 256, 3072",
        {"x": "torch.randn(batch, tokens, width)"},
        "F.layer_norm(x, (self.width,), self.weight, self.bias)",
        "layer_norm_forward(x, self.weight, self.bias, 1e-5)[0]",
        init={"width": "width"},
        parameters={"weight": "torch.ones(width)", "bias": "torch.zeros(width)"},
        before=RSQRT + XPU,
    ),
    Program(
        "liger_rope",
        (Part(f"{OPS}/rope.py", "_triton_rope _resolve_rotary_dim rope_forward"),),
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
]
