# SPDX-License-Identifier: Apache-2.0
"""Makes torch's compiler in this process write the code that it writes where there is an H100.

Import this module only in a process that compiles a reference: it replaces functions of torch. Tensors on the pretended
GPU are `FakeTensor`s, which have shapes and no data. Nothing is launched and nothing is timed: where Inductor would
choose the fastest of several configurations, all of them are recorded, and the judge's clock chooses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import compile_fx, config
from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
from torch._inductor.runtime import triton_helpers
from torch._subclasses import fake_tensor
from torch.fx.experimental import proxy_tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from verl_kernel.env.devices.cpu.cuda_shim import CAPABILITY, PROPERTIES
from verl_kernel.env.inductor import attention
from verl_kernel.env.ops.convolutions import has_channels_last
from verl_kernel.env.ops.dispatch_modes import DispatchMode
from verl_kernel.env.triton_driver import TritonDriver

_SETTINGS: dict[str, Any] = {
    "compile_threads": 1,
    "force_disable_caches": True,  # the judge keeps the program
    "shape_padding": False,  # Inductor pads factors only where that is faster in a measurement
}
_CUDA_VERSION = "12.8"
_CPU, _CUDA = 0, 1
"""Numbers of the kinds of devices in torch (`c10::DeviceType`)."""


def _nothing(*args: Any, **kwargs: Any) -> None: ...


_FUNCTIONS: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "get_device_properties": lambda device=None: SimpleNamespace(**PROPERTIES),
    "get_device_capability": lambda device=None: CAPABILITY,
    "get_device_name": lambda device=None: PROPERTIES["name"],
    "is_bf16_supported": lambda including_emulation=True: True,
    "_exchange_device": lambda index: 0,
    "_maybe_exchange_device": lambda index: 0,
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    **dict.fromkeys(("set_device", "synchronize", "set_rng_state"), _nothing),
}
"""Replacements of functions of `torch.cuda`."""
_INTERFACE = {
    "exchange_device": "_exchange_device",
    "maybe_exchange_device": "_maybe_exchange_device",
    **{
        name: name
        for name in "current_device set_device device_count synchronize get_device_properties is_bf16_supported".split()
    },
}
"""Functions that the compiler's device interface has taken from `torch.cuda`, and their names there."""


_PROPERTIES = {
    "max_shared_mem": PROPERTIES["shared_memory_per_block_optin"],
    "multiprocessor_count": PROPERTIES["multi_processor_count"],
}
"""What Triton asks about the GPU."""


def pretend() -> None:
    """Replace what torch, Inductor and Triton know about GPUs; this cannot be undone."""
    replace_members(torch.cuda, **_FUNCTIONS)
    replace_members(torch.version, cuda=_CUDA_VERSION)
    replace_members(
        torch._C, _cuda_getCurrentRawStream=_no_stream, _conv_determine_backend_memory_format=_convolution_layout
    )
    named = {name: staticmethod(_FUNCTIONS[source]) for name, source in _INTERFACE.items()}
    replace_members(CudaInterface, get_raw_stream=staticmethod(_no_stream), **named)
    replace_members(fake_tensor, init_gpu_context=_nothing)  # it would allocate on the device
    replace_members(fake_tensor.FakeTensorMode, avoid_device_init=True)  # so would a tensor made of numbers
    replace_members(proxy_tensor, CONSTANT_NUMEL_LIMIT=0)  # it would compute with constants on the device
    replace_members(compile_fx, get_input_idxs_to_check=lambda inputs, static: ())  # it would compare addresses
    replace_members(UniformValueConstantFolder, run=_run_on_cpu(UniformValueConstantFolder.run))
    replace_members(triton_helpers, set_driver_to_gpu=_nothing)
    replace_members(config, **_SETTINGS)
    attention.use_kernels()
    _guard_device()
    target = GPUTarget("cuda", 10 * CAPABILITY[0] + CAPABILITY[1], PROPERTIES["warp_size"])
    driver.set_active(TritonDriver(target, _PROPERTIES))


def replace_members(holder: Any, **members: Any) -> None:
    """Replace members of a module or a class."""
    for name, value in members.items():
        setattr(holder, name, value)


class _OnCpu(DispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors on the CPU that are asked for on the GPU."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in (kwargs or {}).items()})


def _on_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _run_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with real tensors, and makes them on the CPU."""

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _OnCpu():  # type: ignore[no-untyped-call]
            return original(*args, **kwargs)

    return run


def _convolution_layout(data: torch.Tensor, weight: torch.Tensor, backend: object) -> torch.memory_format:
    """Return the layout of a convolution's result where cuDNN computes it, which a torch without CUDA does not know."""
    if torch.float64 in (data.dtype, weight.dtype) or not any(map(has_channels_last, (data, weight))):
        return torch.contiguous_format
    return torch.channels_last if data.dim() == 4 else torch.channels_last_3d


def _guard_device() -> None:
    """Give the GPU the device guard of the CPU, which does nothing: a torch built without CUDA has none for it.

    Slicing a tensor asks for the guard of its device, even where the tensor has no data.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[_CUDA] is None:
        guards[_CUDA] = guards[_CPU]


def _no_stream(device: int = 0) -> int:
    return 0
