# SPDX-License-Identifier: Apache-2.0
"""Cases that need TRITON_INTERPRET=1 before triton is imported: run as a script, prints one JSON object."""

import json
import sys
import time
from contextlib import nullcontext

from verl_kernel.env.backends import resolve_device

DEVICE = resolve_device("cpu")
DEVICE.setup()
DEVICE.setup()  # repeated calls are free

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402
from triton.language.extra.cuda import libdevice as cuda_libdevice  # noqa: E402

from verl_kernel.env.trace import dump_events  # noqa: E402


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def same_address(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i * 0))


@triton.jit
def atomic(o, x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(o + i, tl.load(x + i), mask=i < 5)


@triton.jit
def dot(a, b, o, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    tl.store(o + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def softmax(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.program_id(0) * n
    v = tl.load(x + row + i, mask=i < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(o + row + i, v / tl.sum(v, 0), mask=i < n)


@triton.jit
def square_plus(v, c):
    return v * v + c


@triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["B"] == 0})
@triton.jit
def tuned(x, o, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, square_plus(tl.load(x + i, mask=i < n), 1.0), mask=i < n)


@triton.jit
def undefined(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), math.pi)  # noqa: F821  the interpreter's own imports must not leak in


@triton.jit
def missing_function(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), tl.tanhh(tl.load(x + tl.arange(0, B))))


@triton.jit
def bad_shapes(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), tl.load(x + tl.arange(0, 2 * B)))


@triton.jit
def bad_dtype(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), tl.exp(tl.load(x + tl.arange(0, B)).to(tl.float16)))


@triton.jit
def half_tanh(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), libdevice.tanh(tl.load(x + tl.arange(0, B)).to(tl.float16)))


@triton.jit
def bessel(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), libdevice.j0(tl.load(x + tl.arange(0, B))))


@triton.jit
def chained(x, B: tl.constexpr):
    a = b = tl.load(x + tl.arange(0, B))
    tl.store(x + tl.arange(0, B), a + b)


@triton.jit
def foreign(x, B: tl.constexpr):
    tl.store(x, torch.sum(x))


@triton.jit
def static(x, B: tl.constexpr):
    tl.static_assert(B > 100)


@triton.jit
def asserted(x, n, f):
    assert n > 0, "n is not positive"


@triton.jit
def floats(x, f):
    tl.store(x, 1.0 / f)
    tl.store(x + 1, f.to(tl.float16).to(tl.float32))
    tl.store(x + 2, tl.where(~(f > 0.5), 1.0, f))


@triton.jit
def unary(x, o, f: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, f(tl.load(x + i)))


@triton.jit
def powers(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, cuda_libdevice.pow(tl.load(x + i), tl.load(y + i)) + libdevice.fma(2.0, 3.0, 4.0))


def record(run, mode=nullcontext):
    error = None
    with mode(), DEVICE.record() as events:
        try:
            run()
        except Exception as exc:  # noqa: BLE001
            error = {"type": type(exc).__name__, "text": str(exc), "compile": DEVICE.is_compile_error(exc)}
    return {"events": dump_events(events), "error": error}


def case_masked_add():
    x, y = torch.randn(2, 1000)
    o = torch.full((1001,), 7.0)
    seen = record(lambda: add[(8,)](x, y, o, 1000, B=128))
    return {**seen, "exact": torch.equal(o[:1000], x + y), "beyond": o[1000].item()}


def case_same_address():
    return record(lambda: same_address[(3,)](torch.ones(1), torch.empty(16), B=16))


def case_atomic():
    o = torch.zeros(8)
    return {**record(lambda: atomic[(2,)](o, torch.ones(8), B=8)), "values": o.tolist()}


def case_dot():
    a, b = torch.randn(2, 16, 16)
    o = torch.empty(16, 16)
    single = record(lambda: dot[(1,)](a, b, o, B=16))
    half = record(lambda: dot[(1,)](a.half(), b.half(), torch.empty(16, 16), B=16))
    return {"single": single["events"][-1], "half": half["events"][-1], "off_by": (o - a @ b).abs().max().item()}


def case_softmax():
    x = torch.randn(4, 100)
    o = torch.empty_like(x)
    seen = record(lambda: softmax[(4,)](x, o, 100, B=128))
    return {**seen, "off_by": (o - x.softmax(-1)).abs().max().item()}


def case_autotune():
    x = torch.randn(128)
    o = torch.empty_like(x)
    first = record(lambda: tuned[lambda meta: (triton.cdiv(128, meta["B"]),)](x, o, 128))
    again = record(lambda: tuned[lambda meta: (triton.cdiv(128, meta["B"]),)](x, o, 128))
    return {"first": first, "again": again, "exact": torch.allclose(o, x * x + 1)}


def case_refusals():
    x = torch.ones(16)
    kernels = (undefined, missing_function, bad_shapes, bad_dtype, half_tanh, bessel, chained, foreign, static)
    return {kernel.__name__: record(lambda kernel=kernel: kernel[(1,)](x, B=16)) for kernel in kernels}


def case_host_errors():
    def grid(meta):
        raise KeyError("grid")

    x = torch.ones(16)
    return {
        "arguments": record(lambda: add[(1,)](x)),
        "grid": record(lambda: add[grid](x, x, x, 16, B=16)),
        "host_call": record(lambda: square_plus(x, 1.0)),
        "torch": record(lambda: x @ torch.ones(3)),
    }


def case_values():
    return {
        kernel.__name__: [record(lambda kernel=kernel, n=n: kernel[(1,)](torch.ones(1), n, float(n))) for n in (2, 0)]
        for kernel in (asserted,)
    }


def case_floats():
    x, y = torch.zeros(3), torch.zeros(3)
    floats[(1,)](x, 0.0)
    floats[(1,)](y, 0.1 + 2**-40)
    return [*x.tolist(), *y.tolist()]


def case_recovers():
    x = torch.ones(16)
    record(lambda: undefined[(1,)](x, B=16))
    o = torch.empty(16)
    add[(1,)](x, x, o, 16, B=16)
    return o.tolist()


def case_suppressed():
    x = torch.ones(16)
    o = torch.zeros(16)
    seen = record(lambda: (add[(1,)](x, x, o, 16, B=16), o.add_(1)), DEVICE.suppress_launches)
    return {**seen, "values": o.tolist()}


def case_empty_grid():
    x = torch.ones(0)
    return record(lambda: add[(0,)](x, x, x, 0, B=16))


def case_work_in_grid():
    x = torch.randn(16)
    return record(lambda: add[lambda meta: (int(torch.softmax(x, 0).sum().round()),)](x, x, torch.empty(16), 16, B=16))


def case_elsewhere():
    from tests.env.judge import foreign_kernel

    return record(lambda: foreign_kernel.launch(torch.ones(4)))


def case_libdevice():
    x = torch.linspace(0.05, 0.95, 16)
    names = "tanh erf erfc exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh expm1 log1p log2 exp2 floor ceil"
    errors = {}
    for name in names.split():
        o = torch.empty(16)
        unary[(1,)](x, o, getattr(libdevice, name), B=16)
        errors[name] = (o.double() - getattr(torch, name)(x.double())).abs().max().item()
    o = torch.empty(16)
    powers[(1,)](x, 3 * x, o, B=16)
    errors["pow and fma"] = (o.double() - x.double() ** (3 * x.double()) - 10).abs().max().item()
    return errors


def case_cuda_names():
    """Runs as the gym runs a program: the script is no library, so it is told that the CPU is `cuda`."""
    x = torch.ones(4, device="cuda")
    moved = [x.cuda(), x.to("cuda:0"), x.to(torch.device("cuda")), torch.zeros_like(x, device=x.device)]
    with torch.device("cuda"), torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
        moved.append(torch.zeros(2))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LSTM(4, 4)).cuda().to("cuda")
    model(x[None])
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    torch.cuda.synchronize()
    return {
        "shown": [str(x.device), x.is_cuda, torch.cuda.is_available(), torch.cuda.current_device()],
        "capability": list(torch.cuda.get_device_capability()),
        "processors": torch.cuda.get_device_properties(0).multi_processor_count,
        "same": x.device.type == torch.device("cuda").type,
        "numpy": [tensor.numpy().sum().item() for tensor in moved],
        "active": str(triton.runtime.driver.active.get_active_torch_device()),
    }


def case_do_bench():
    """Milliseconds that each call took, by its own account, beside those that `do_bench` gives, and the whole of it."""
    from triton.testing import do_bench

    own = []

    def work():
        start = time.perf_counter()
        sum(range(10_000))
        own.append((time.perf_counter() - start) * 1e3)

    start = time.perf_counter()
    given = do_bench(work, warmup=1, rep=5, return_mode="all")
    return {"own": own, "given": given, "whole": (time.perf_counter() - start) * 1e3}


def case_inference_mode():
    model = torch.nn.Linear(8, 4)
    x = torch.randn(2, 8)
    modes = (torch.no_grad, torch.inference_mode)
    return {mode.__name__: record(lambda: torch.softmax(model(x), -1), mode) for mode in modes}


if __name__ == "__main__":
    cases = {name[5:]: case for name, case in list(globals().items()) if name.startswith("case_")}
    json.dump({name: case() for name, case in cases.items()}, sys.stdout)
