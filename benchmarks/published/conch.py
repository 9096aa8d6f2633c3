# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of conch-triton-kernels: norms, activations, caches, attention, quantised products, boxes."""

from benchmarks.published.packages import Part
from benchmarks.published.program import Program

KERNELS = "conch/kernels"
GEMM = Part(
    f"{KERNELS}/quantization/gemm.py",
    "WeightGroupMode _WEIGHT_GROUP_MODE_NONE _WEIGHT_GROUP_MODE_SHIFT _WEIGHT_GROUP_MODE_SYMMETRIC_NO_SHIFT "
    "_WEIGHT_GROUP_MODE_SYMMETRIC_WITH_SHIFT _WEIGHT_GROUP_MODE_ASYMMETRIC LoadOrder _LOAD_ORDER_VERY_EARLY "
    "_LOAD_ORDER_EARLY _LOAD_ORDER_MID _LOAD_ORDER_LATE ChannelScaleMode _CHANNEL_SCALE_MODE_NONE "
    "_CHANNEL_SCALE_MODE_WEIGHT_ONLY _CHANNEL_SCALE_MODE_ACTIVATION_ONLY _CHANNEL_SCALE_MODE_WEIGHT_AND_ACTIVATION "
    "TORCH_DTYPE_TO_TRITON _get_matrix_a_eviction_policy _get_matrix_b_eviction_policy _get_metadata_eviction_policy "
    "_get_tuning_parameters _swizzle_tile _linear_tile _dequantize _gemm_kernel ScaledMatmulMetadata "
    "scaled_gemm_launcher MixedPrecisionMatmulMetadata mixed_precision_gemm_launcher",
)
DEQUANTIZE = Part(
    f"{KERNELS}/quantization/bitsandbytes/dequantize_blockwise.py",
    "QuantizedDType _QUANTIZED_DTYPE_GENERAL_8BIT _QUANTIZED_DTYPE_NF4 _QUANTIZED_DTYPE_FP4 _get_quantized_dtype "
    "_nf4_dequantize _fp4_dequantize _dequantize_blockwise_kernel dequantize_blockwise_launcher",
)

INT8 = Part(f"{KERNELS}/quantization/int8.py", "_static_scaled_int8_quant_kernel static_scaled_int8_quant_launcher")
SILU = Part(f"{KERNELS}/activation/silu_and_mul.py", "_silu_and_mul_kernel silu_and_mul_launcher")
PLATFORM = """
class current_platform:
    is_amd = staticmethod(lambda: False)
    is_nvidia = staticmethod(lambda: True)
"""

PROGRAMS = {
    "conch_silu_and_mul": Program(
        SILU,
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
    "conch_int8_quant": Program(
        INT8,
        "tokens, width = 256, 4096",
        {"x": "torch.randn(tokens, width)", "scale": "torch.rand(1) * 0.01 + 0.02"},
        "torch.clamp(x * (1 / scale), -128, 127).to(torch.int8)",
        """
        out = torch.empty_like(x, dtype=torch.int8)
        static_scaled_int8_quant_launcher(out, x, scale)
        return out
        """,
    ),
    "conch_rms_norm_bf16": Program(
        Part(f"{KERNELS}/normalization/rms_norm.py", "_rms_norm_kernel rms_norm_launcher"),
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
        parameters={"weight": "torch.ones(width, dtype=torch.bfloat16)"},
    ),
    "conch_gelu_tanh_and_mul": Program(
        Part(
            f"{KERNELS}/activation/gelu_tanh_and_mul.py",
            "_M_2_SQRTPI _M_SQRT2 _gelu_tanh_and_mul_kernel gelu_tanh_and_mul_launcher",
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
    "conch_gemma_rms_norm_bf16": Program(
        Part(
            f"{KERNELS}/normalization/gemma_rms_norm.py",
            "_gemma_rms_norm_inplace_kernel gemma_rms_norm_inplace_launcher",
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
        parameters={"weight": "torch.randn(width, dtype=torch.bfloat16) / 10"},
        wrong=("(1.0 + w)", "w"),
    ),
    "conch_fused_add_rms_norm_fp16": Program(
        Part(f"{KERNELS}/normalization/rms_norm.py", "_rms_norm_kernel fused_add_rms_norm_launcher"),
        "tokens, width = 4096, 4096",
        {"x residual": "torch.randn(tokens, width).half()"},
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
        parameters={"weight": "torch.ones(width, dtype=torch.float16)"},
        wrong=("x += residual", "x -= residual"),
    ),
    "conch_rotary_embedding": Program(
        Part(f"{KERNELS}/embedding/rotary_embedding.py", "_rotary_embedding_kernel rotary_embedding_launcher"),
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
    "conch_fp8_quant_bf16": Program(
        Part(f"{KERNELS}/quantization/fp8.py", "_static_scaled_fp8_quant_kernel static_scaled_fp8_quant_launcher"),
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
    "conch_reshape_and_cache_bf16": Program(
        Part(f"{KERNELS}/vllm/reshape_and_cache.py", "_reshape_and_cache_kernel reshape_and_cache_launcher"),
        "tokens, heads, width, pages = 4096, 8, 128, 512",
        {
            "key value": "torch.randn(tokens, heads, width, dtype=torch.bfloat16)",
            "slots": "torch.randperm(pages * 16)[:tokens]",
        },
        """
        found = []
        for x in (key, value):
            cache = torch.zeros(512 * 16, *x.shape[1:], dtype=x.dtype, device=x.device)
            cache[slots] = x
            found.append(cache.reshape(512, 16, *x.shape[1:]))
        return found
        """,
        """
        keys, values = [torch.zeros(512, 16, *x.shape[1:], dtype=x.dtype, device=x.device) for x in (key, value)]
        reshape_and_cache_launcher(key, value, keys, values, slots)
        return [keys, values]
        """,
        wrong=("entry_index * kv_cache_block_stride", "0 * kv_cache_block_stride"),
    ),
    "conch_paged_attention": Program(
        Part(
            f"{KERNELS}/attention/paged_attention.py",
            "_paged_attention_compute_splits_kernel _paged_attention_reduce_splits_kernel paged_attention_launcher",
        ),
        "batch, tokens, heads, kv_heads, width = 8, 2048, 32, 8, 128",
        {
            "q": "torch.randn(batch, heads, width)",
            "keys values": "torch.randn(batch * tokens // 32, 32, kv_heads, width)",
            "table": "torch.randperm(batch * tokens // 32).reshape(batch, tokens // 32).int()",
        },
        """
        k, v = [x[table.long()].flatten(1, 2).transpose(1, 2).repeat_interleave(4, 1) for x in (keys, values)]
        return F.scaled_dot_product_attention(q[:, :, None], k, v)[:, :, 0]
        """,
        """
        batch, heads, width = q.shape
        out, splits = torch.empty_like(q), table.shape[1]
        parts = torch.empty(batch, splits, heads, width, dtype=q.dtype, device=q.device)
        sums = torch.empty(batch, splits, heads, dtype=q.dtype, device=q.device)
        lengths = torch.full((batch,), splits * 32, dtype=torch.int32, device=q.device)
        paged_attention_launcher(out, q, keys, values, parts, sums, table, lengths, scale=width**-0.5)
        return out
        """,
        before=PLATFORM,
        changes=(
            ("tl.dot(query, key_block)", "tl.dot(query, key_block, input_precision='ieee')"),
            ("tl.dot(p, value_block)", "tl.dot(p, value_block, input_precision='ieee')"),
        ),
        wrong=("splits * 32, dtype", "splits * 32 - 40, dtype"),
    ),
    "conch_scaled_gemm_int8": Program(
        GEMM,
        "rows, inner, columns = 512, 1024, 1024",
        {
            "a": "torch.randint(-127, 128, (rows, inner), dtype=torch.int8)",
            "b": "torch.randint(-127, 128, (inner, columns), dtype=torch.int8)",
            "scale_a": "torch.rand(rows, 1) / 1000",
            "scale_b": "torch.rand(columns, 1)",
        },
        "return ((a.float() @ b.float()) * scale_a * scale_b.T).to(torch.float16)",
        """
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty(m, n, dtype=torch.float16, device=a.device)
        scaled_gemm_launcher(out, a, b, scale_a, scale_b, ScaledMatmulMetadata(
            m, k, n, True, a.dtype, out.dtype, torch.int32, scale_a.dtype, ChannelScaleMode.WEIGHT_AND_ACTIVATION,
            WeightGroupMode.NONE,
        ))
        return out
        """,
        before=PLATFORM,
    ),
    "conch_mixed_gemm_int4": Program(
        GEMM,
        "rows, inner, columns = 512, 4096, 4096",
        {
            "x": "torch.randn(rows, inner).half()",
            "packed": "torch.randint(-2**31, 2**31 - 1, (inner // 8, columns), dtype=torch.int32)",
            "scales": "(torch.rand(inner // 128, columns) / 100).half()",
        },
        """
        places = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
        four = (packed[:, None] >> places[:, None]) & 15
        weight = (four.reshape(-1, packed.shape[1]).half() - 8) * scales.repeat_interleave(128, 0)
        return x @ weight
        """,
        """
        (m, k), n = x.shape, packed.shape[1]
        out = torch.empty(m, n, dtype=x.dtype, device=x.device)
        mixed_precision_gemm_launcher(out, x, packed, scales, None, MixedPrecisionMatmulMetadata(
            m_dim=m, k_dim=k, n_dim=n, weight_size_bits=4, weight_bias=8, group_size=128, elements_per_sample=8,
            zero_is_scalar=False, unpack_mask=15, data_contiguous=True, input_dtype=x.dtype, output_dtype=x.dtype,
            acc_dtype=torch.float32, meta_dtype=x.dtype, channel_scale_mode=ChannelScaleMode.NONE,
            weight_group_mode=WeightGroupMode.SYMMETRIC_NO_SHIFT,
        ))
        return out
        """,
        before=PLATFORM,
        wrong=("weight_bias=8", "weight_bias=7"),
    ),
    "conch_dequantize_nf4": Program(
        DEQUANTIZE,
        "count = 1024 * 1024",
        {"packed": "torch.randint(0, 256, (count // 2,)).to(torch.uint8)", "largest": "torch.rand(count // 64) + 0.5"},
        """
        table = torch.tensor([
            -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
            -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
            0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
        ], device=packed.device)
        four = torch.stack((packed >> 4, packed & 15), -1).flatten()
        return table[four.long()] * largest.repeat_interleave(64)
        """,
        """
        out = torch.empty(2 * packed.numel(), dtype=torch.float32, device=packed.device)
        return dequantize_blockwise_launcher(packed, largest, out, None, 64, out.numel(), "nf4")
        """,
    ),
    "conch_iou_mask_autotuned": Program(
        Part(f"{KERNELS}/vision/nms.py", "_create_iou_mask_kernel"),
        "boxes = 4096",
        {"corner": "torch.rand(boxes, 2) * 100", "size": "torch.rand(boxes, 2) * 40 + 1"},
        """
        boxes = torch.cat((corner, corner + size), 1)
        first, last = [x(boxes[:, None, p], boxes[None, :, p]) for x, p in ((torch.max, [0, 1]), (torch.min, [2, 3]))]
        shared = (last - first).clamp(min=0).prod(-1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        return (shared / (area[:, None] + area - shared) > 0.5).triu()
        """,
        """
        boxes = torch.cat((corner, corner + size), 1)
        count = boxes.shape[0]
        mask = torch.zeros(count, count, dtype=torch.bool, device=boxes.device)
        _create_iou_mask_kernel[(count,)](boxes, mask, count, 0.5, boxes.stride(0), mask.stride(0))
        return mask
        """,
        wrong=("iou > iou_threshold", "iou > iou_threshold + 0.01"),
    ),
    "conch_bev_pool": Program(
        Part(f"{KERNELS}/vision/bev_pool.py", "_bev_pool_kernel bev_pool_launcher"),
        "cells, each, channels = 128 * 128, 16, 80",
        {"features": "torch.randn(cells * each, channels)", "places": "torch.randperm(cells)"},
        """
        out = torch.empty(places.numel(), features.shape[1], device=features.device)
        out[places] = features.reshape(places.numel(), -1, features.shape[1]).sum(1)
        return out.reshape(1, 1, 128, 128, -1)
        """,
        """
        cells, each = places.numel(), features.shape[0] // places.numel()
        nothing = torch.zeros_like(places)
        geometry = torch.stack((places // 128, places % 128, nothing, nothing), 1).repeat_interleave(each, 0)
        starts = torch.arange(0, cells * each, each, device=features.device)
        out = torch.zeros(1, 1, 128, 128, features.shape[1], device=features.device)
        bev_pool_launcher(out, features, geometry, starts, torch.full_like(starts, each))
        return out
        """,
    ),
}
