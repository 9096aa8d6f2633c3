# SPDX-License-Identifier: Apache-2.0
"""The allow list of the dotted paths that a candidate may use in the modules it may import.

A dotted path may pass through open modules only, so no path reaches `sys` through `torch.nn.functional.importlib`.
Names that a module does not have are allowed: they fail when they are used, with a better message than the gate's.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from functools import lru_cache
from typing import Any

import torch

SPECIAL_NAMES = frozenset("__name__ __doc__ __all__ __slots__ __constants__".split())
SPECIAL_ATTRIBUTES = frozenset("__init__ __name__ __version__ __post_init__".split())

_LISTED: dict[str, str] = {
    "functools": "partial reduce lru_cache cache cached_property wraps",
    "dataclasses": "dataclass field fields asdict astuple replace",
    "itertools": "product chain count cycle repeat accumulate permutations combinations zip_longest islice starmap",
    "typing": "Any Callable ClassVar Dict Final Generic Iterable Iterator List Literal Mapping NamedTuple Optional "
    "Sequence Set Tuple Type TypeVar Union TYPE_CHECKING cast Annotated Protocol",
    "__future__": "annotations",
    "abc": "ABC abstractmethod",
    "collections": "namedtuple OrderedDict defaultdict deque Counter",
    "collections.abc": "Callable Collection Iterable Iterator Mapping MutableMapping MutableSequence Sequence",
    "contextlib": "nullcontext",
    "copy": "copy deepcopy",
    "importlib": "util",
    "importlib.util": "find_spec",
    "einops": "rearrange repeat reduce einsum pack unpack",
    "packaging.version": "parse Version",
    "enum": "Enum IntEnum Flag IntFlag auto unique",
    "numpy": "prod ceil floor sqrt log log2 log10 exp exp2 minimum maximum abs sign rint trunc cbrt power gcd lcm "
    "pi e inf nan",
    "logging": "getLogger debug info warning",
    "operator": "add sub mul truediv floordiv mod neg pos abs lt le eq ne gt ge and_ or_ xor not_ lshift rshift index",
    "os": "environ getenv",
    "warnings": "warn filterwarnings simplefilter",
    "torch.nn.common_types": "_ratio_2_t _ratio_3_t _size_1_t _size_2_opt_t _size_2_t _size_3_opt_t _size_3_t "
    "_size_4_t _size_any_opt_t _size_any_t",
    "torch.nn.utils": "weight_norm remove_weight_norm spectral_norm remove_spectral_norm fuse_conv_bn_eval "
    "fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights",
    "torch.nn.utils.parametrizations": "weight_norm spectral_norm orthogonal",
    "torch.nn.utils.rnn": "PackedSequence pack_padded_sequence pack_sequence pad_packed_sequence pad_sequence "
    "unpack_sequence unpad_sequence",
    "torch.nn.modules": "utils",
    "torch.nn.modules.utils": "_single _pair _triple _quadruple _ntuple",
    "torch.nn.parameter": "Parameter Buffer UninitializedParameter UninitializedBuffer",
    "torch.cuda": "is_available device_count current_device get_device_name get_device_properties empty_cache "
    "get_device_capability synchronize device device_of current_stream is_bf16_supported set_device amp "
    "is_current_stream_capturing",
    "torch.xpu": "is_available device_count current_device get_device_name get_device_properties",
    "torch.accelerator": "is_available device_count current_accelerator current_device_index device_index synchronize",
    "torch.amp": "autocast custom_fwd custom_bwd",
    "torch.cuda.amp": "autocast custom_fwd custom_bwd",
    "torch.autograd": "Function no_grad enable_grad inference_mode set_grad_enabled function",
    "torch.autograd.function": "Function FunctionCtx once_differentiable",
    "torch.backends": "cuda cudnn",
    "torch.library": "custom_op triton_op wrap_triton",
    "torch.compiler": "is_compiling is_dynamo_compiling disable allow_in_graph",
    "torch.backends.cuda": "matmul is_built",
    "torch.backends.cudnn": "allow_tf32 benchmark deterministic enabled is_available version",
    "triton": "jit autotune heuristics Config cdiv next_power_of_2 constexpr_function set_allocator OutOfResources "
    "CompilationError reinterpret",
    "triton.runtime": "driver",
    "triton.runtime.driver": "active",
    "triton.tools": "tensor_descriptor",
    "triton.tools.tensor_descriptor": "TensorDescriptor",
    "triton.language.core": "constexpr dtype tensor tuple block_type pointer_type get_int_dtype int1 int8 int16 int32 "
    "int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e4nv float8e5 void PropagateNan "
    "arange associative_scan atomic_add broadcast_to cast cat dot expand_dims full inline_asm_elementwise join load "
    "make_tensor_descriptor num_programs permute program_id range reduce reshape split static_assert static_print "
    "static_range store trans view where _unwrap_if_constexpr",
    "triton.language.standard": "_is_power_of_two _log2 argmax argmin cdiv cumprod cumsum flip interleave max min "
    "ravel reduce_or sigmoid softmax sort sum swizzle2d topk xor_sum zeros zeros_like",
    "triton.language.extra": "libdevice cuda hip",
    "triton.language.extra.cuda": "libdevice globaltimer num_threads num_warps smid gdc_launch_dependents gdc_wait",
    "triton.language.extra.hip": "libdevice",
}
_CLOSED: dict[str, str] = {
    "triton.language": "semantic random target_info",
    "triton.language.math": "core wraps List T",
    "triton.language.extra.libdevice": "core",
    "triton.language.extra.cuda.libdevice": "core",
    "triton.language.extra.hip.libdevice": "core",
    "torch.version": "",
    "math": "",
}
_JUDGED = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.linalg", "torch.fft", "torch.special")
OPEN_MODULES = frozenset((*_LISTED, *_CLOSED, *_JUDGED))
"""Modules that a candidate may import and a path may pass through."""
NUMPY_CONSTANTS = frozenset("numpy.pi numpy.e numpy.inf numpy.nan".split())
_PRIVATE_BUT_COMMON = frozenset(
    "torch.nn.init._calculate_fan_in_and_fan_out torch.nn.init._calculate_correct_fan".split()
)
"""Private names of PyTorch that are common in initialisation code."""
ENVIRONMENT = "os.environ"
"""Path of the variables, which hold no secrets in the jail: they may be read, but not changed or passed as a value."""
_ROOTS = frozenset(module.partition(".")[0] for module in OPEN_MODULES)
_DRIVER = frozenset(
    f"triton.runtime.driver.active{rest}"
    for rest in (
        *("", ".utils", ".utils.get_device_properties", ".get_current_device", ".get_current_target"),
        ".get_active_torch_device",
    )
)
_TORCH = frozenset(
    "nn cuda xpu backends autograd amp autocast linalg fft special version Tensor Size device dtype layout "
    "memory_format finfo iinfo Generator no_grad enable_grad inference_mode set_grad_enabled is_grad_enabled newaxis "
    "inf nan pi e is_tensor get_default_dtype get_default_device typename sym_int sym_float sym_max sym_min "
    "set_float32_matmul_precision get_float32_matmul_precision is_autocast_enabled get_autocast_dtype "
    "get_autocast_gpu_dtype OutOfMemoryError strided lobpcg BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor "
    "HalfTensor IntTensor LongTensor ShortTensor BFloat16Tensor".split()
)
_NOT_TORCH = frozenset(
    "from_file from_numpy frombuffer from_dlpack to_dlpack is_inference is_inference_mode_enabled".split()
)
_NOT_FUNCTIONAL = frozenset(
    "handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic boolean_dispatch "
    "Callable Optional Tensor DType".split()
)
SETTINGS = frozenset(
    "torch.backends.cuda.matmul.allow_tf32 torch.backends.cudnn.allow_tf32 torch.backends.cudnn.benchmark "
    "torch.backends.cudnn.deterministic torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction".split()
)
"""Paths in imported modules to which a candidate may assign."""
INFERENCE = "no trial runs in inference mode, so nothing may depend on it"
_REMEDIES = {
    "torch.compile": "write the kernel in Triton",
    "torch.jit": "write the kernel in Triton",
    "torch.autograd.grad": "write the formula of the gradient",
    "torch.manual_seed": "random numbers are the judge's",
    "torch.cuda.Event": "the judge takes the time",
    "torch.cuda.Stream": "launch on the current stream",
    "torch.cuda.stream": "launch on the current stream",
    "torch.cuda.CUDAGraph": "launch kernels directly",
    "torch.is_inference": INFERENCE,
    "torch.is_inference_mode_enabled": INFERENCE,
    "torch.from_numpy": "allocate with torch.empty",
    "triton.testing": "the judge takes the time",
    "triton.language.random": "use triton.language",
}


@lru_cache(maxsize=4096)
def refusal(path: str) -> str:
    """Return why a dotted path must not be used; an empty text if it may."""
    parts = path.split(".")
    if parts[0] not in _ROOTS:
        return ""
    module = parts[0]
    for number, name in enumerate(parts[1:], 1):
        if f"{module}.{name}" in OPEN_MODULES:
            module = f"{module}.{name}"
            continue
        return _member(module, name, parts[number + 1 :])
    return ""


def _member(module: str, name: str, rest: list[str]) -> str:
    path = ".".join((module, name, *rest))
    if path in _PRIVATE_BUT_COMMON:
        return ""
    own = f" {name} " in f" {_LISTED.get(module, '')} " or _is_experiment(module, name)
    if any(part.startswith("_") and part not in SPECIAL_ATTRIBUTES for part in (*(() if own else (name,)), *rest)):
        return f"{path} is private to {module}"
    if module == "triton.runtime.driver":
        return "" if path in _DRIVER else f"{path} is not allowed"
    if path.startswith(f"{ENVIRONMENT}.") and path != f"{ENVIRONMENT}.get":
        return f"{path} is not allowed: variables can only be read"
    if name in SPECIAL_ATTRIBUTES or _offers(module, name):
        return ""
    remedy = _REMEDIES.get(f"{module}.{name}")
    return f"{path} is not allowed: {remedy}" if remedy else f"{path} is not allowed"


def _is_experiment(module: str, name: str) -> bool:
    """Whether a name is that of an earlier Triton's experiment, for which programs ask before they use it."""
    return module == "triton.language" and name.startswith("_experimental_")


def _offers(module: str, name: str) -> bool:
    if module in _LISTED:
        return name in _LISTED[module].split()
    if module in _CLOSED:
        return name not in _CLOSED[module].split()
    real: Any = sys.modules[module]
    if name not in vars(real):
        return not _is_module(f"{module}.{name}")
    return _judge(module, name, vars(real)[name])


def _judge(module: str, name: str, value: Any) -> bool:
    if module == "torch":
        return name not in _NOT_TORCH and (
            name in _TORCH
            or isinstance(value, torch.dtype | torch.layout | torch.memory_format)
            or name in torch.functional.__all__
            or hasattr(torch._C._VariableFunctions, name)
        )
    if isinstance(value, types.ModuleType) or name in _NOT_FUNCTIONAL:
        return False
    if module == "torch.nn":
        return isinstance(value, type) and issubclass(value, torch.nn.Module | torch.Tensor)
    return callable(value) and not isinstance(value, type)


def _is_module(path: str) -> bool:
    try:
        return path in sys.modules or importlib.util.find_spec(path) is not None
    except (ImportError, ValueError):
        return False
