# SPDX-License-Identifier: Apache-2.0
"""Runs Triton's tutorials through the emulator and compares with torch (`make test-tutorials`).

Run: python -m benchmarks.triton_tutorials FOLDER [01 02 ...]. FOLDER holds copies of the tutorials.
What they time and draw is left out. Prints a line for each, and ends with 1 if one does not agree.
"""

import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import torch
import triton
from torch.overrides import TorchFunctionMode

from verl_kernel.env.emulator import driver


class OnTheHost(TorchFunctionMode):
    """Tensors for a GPU are made in the host's memory."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


@contextmanager
def machine():
    """What tutorials ask of a machine with a GPU, and of Triton's fork for CPUs; nothing is timed."""
    driver.activate()
    active = triton.runtime.driver.active
    for name in ("set_active_to_cpu", "set_active_to_gpu", "get_active_gpus"):
        setattr(type(triton.runtime.driver), name, lambda self, *rest: None)
    properties = active.utils.get_device_properties(0)
    torch.cuda.get_device_capability = lambda device=None: divmod(driver.CAPABILITY, 10)
    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(
        multi_processor_count=properties["multiprocessor_count"]
    )
    torch.nn.functional.layer_norm = layer_norm_of_a_gpu
    made = triton.Config
    triton.Config = lambda *words, num_cpu_threads=0, **more: made(*words, **more)
    triton.testing.perf_report = lambda configurations: lambda function: SimpleNamespace(run=lambda **options: None)
    sys.modules.update({"triton.profiler": MagicMock(), "tabulate": sys.modules.get("tabulate", MagicMock())})
    from triton._C.libtriton import nvidia

    nvidia.cublas = SimpleNamespace(CublasLt=lambda workspace: SimpleNamespace(matmul=library_product))
    with OnTheHost():
        yield


def layer_norm_of_a_gpu(x, shape, weight, bias, eps, own=torch.nn.functional.layer_norm):
    """On a CPU torch sums gradients of halves in half precision: float32, as on a GPU, is far closer to the truth."""
    return own(x.float(), shape, weight.float(), bias.float(), eps).to(x.dtype)


def library_product(a, b, out):
    out.copy_(a.float() @ b.float().T)


def vector_add(module):
    x, y = torch.rand(98432), torch.rand(98432)
    for add in (module.add_tiled, lambda *words: module.add(*words, torch.device("cpu"))):
        torch.testing.assert_close(add(x, y, None), x + y, atol=0, rtol=0)


def softmax(module):
    x = torch.randn(1823, 781)
    torch.testing.assert_close(module.softmax(x), torch.softmax(x, 1))


def product(module):
    a, b = torch.rand(512, 512).half() - 0.5, torch.rand(512, 512).half() - 0.5
    for activation in ("", "leaky_relu"):
        wanted = a.float() @ b.float()
        wanted = torch.where(wanted >= 0, wanted, 0.01 * wanted) if activation else wanted
        torch.testing.assert_close(module.matmul(a, b, activation=activation).float(), wanted, atol=1e-2, rtol=0)
    a, b = (item.to(torch.float8_e5m2) for item in (torch.randn(512, 512), torch.randn(512, 512).T))
    torch.testing.assert_close(module.matmul(a, b).float(), a.float() @ b.float(), atol=0.125, rtol=0)


def dropout(module):
    x, keep = torch.randn(100_000), torch.rand(100_000) > 0.5
    torch.testing.assert_close(module.dropout(x, keep.to(torch.int32), p=0.5), torch.where(keep, 2 * x, 0.0))
    first, again, other = (module.seeded_dropout(x, p=0.5, seed=seed) for seed in (123, 123, 512))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    kept = first != 0
    torch.testing.assert_close(first, torch.where(kept, 2 * x, 0.0))
    assert 0.49 < kept.float().mean() < 0.51


def layer_norm(module):
    module.test_layer_norm(1151, 8192, torch.float16, device="cpu")


def untuned(module):
    """Try the first configuration only: all take the same time here, so it would be chosen."""
    for kernel in vars(module).values():
        if isinstance(kernel, triton.runtime.Autotuner):
            kernel.configs = kernel.configs[:1]


def attention(module):
    untuned(module)
    for causal in (False, True):
        for size in (64, 128):
            module.test_op(1, 2, 1024, size, causal, False, "bwd", "triton-fp16")
            module.test_op(1, 2, 1024, size, causal, False, "fwd", "triton-fp8")


def persistent_product(module):
    untuned(module)
    a, b = torch.randn(512, 256).half(), torch.randn(256, 384).half()
    wanted, turned = a.float() @ b.float(), b.T.contiguous()
    descriptors = (module.matmul_tma, module.matmul_tma_persistent, module.matmul_descriptor_persistent)
    found = [module.matmul(a, b), module.matmul_persistent(a, b), *(one(a, turned, False) for one in descriptors)]
    for out in found:
        torch.testing.assert_close(out.float(), wanted, atol=0.1, rtol=0)


CHECKS = {
    "01": vector_add, "02": softmax, "03": product, "04": dropout, "05": layer_norm, "06": attention,
    "09": persistent_product,
}  # fmt: skip


def loaded(path):
    module = ModuleType("tutorial")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def outcome(number, folder):
    """Why a tutorial does not agree with torch; None if it does."""
    (path,) = folder.glob(f"{number}-*.py")
    torch.manual_seed(0)
    try:
        CHECKS[number](loaded(path))
    except Exception:  # noqa: BLE001 - whatever it is, it is this tutorial's
        return traceback.format_exc()
    return None


def main(folder, *numbers):
    failed = 0
    with machine():
        for number in numbers or CHECKS:
            begun = time.process_time()
            why = outcome(number, Path(folder))
            failed += why is not None
            spent = time.process_time() - begun
            print(f"tutorial {number}: {why or 'agrees with torch'} ({spent:.0f} s)", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
