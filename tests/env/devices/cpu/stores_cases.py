# SPDX-License-Identifier: Apache-2.0
"""Run with TRITON_INTERPRET=1 by test_stores.py: what stores are found to be, and what tuning does. Prints JSON."""

import json

import torch
import triton
import triton.language as tl

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.cpu.stores import STORES

DEVICE = resolve_device("cpu")
DEVICE.setup()
N = 256


@triton.jit
def mapped(x, o, n, KIND: tl.constexpr, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + c, mask=c < n)
    if KIND == "relu":
        v = tl.maximum(v, 0.0)
    if KIND == "zero":
        v = v * 0.0
    if KIND == "one program" and tl.program_id(0) == 3:
        v = v * 2.0
    tl.store(o + c, v, mask=c < n)


@triton.jit
def filled(o, value, n, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + c, tl.zeros((B,), tl.float32) + value, mask=c < n)


@triton.jit
def larger(x, o):
    i = tl.program_id(0)
    tl.store(o + i, tl.maximum(tl.load(x + 2 * i), tl.load(x + 2 * i + 1)))


@triton.jit
def picked(x, o):
    i = tl.program_id(0)
    tl.store(o + i, tl.load(x + 2 * i + 1))


@triton.jit
def added(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    tl.atomic_add(o + c, tl.load(x + tl.program_id(0) * n + c, mask=c < n), mask=c < n)


@triton.jit
def counted(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    tl.atomic_add(o + (tl.load(x + c) > 0).to(tl.int32) + tl.program_id(0), 1.0)


@triton.jit
def both(x, o, p, n, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + c, mask=c < n)
    tl.store(o + c, v, mask=c < n)
    tl.store(p + c, v * 2.0, mask=c < n)


def forward(call):
    with torch.no_grad(), DEVICE.record() as events:
        call()
    return [event.to_json() for event in events if event.kind == "launch"]


def shares(call):
    """Computed share of the only launch in three forwards on other inputs, the second with other signs."""
    found = []
    STORES.__init__()  # what other cases have shown of a kernel does not count
    for number in range(3):
        x = torch.rand(N) if number != 1 else torch.randn(N)
        (event,) = forward(lambda x=x: call(x))
        found.append(event["computed"] / event["stored"])
    return found


def case_shares():
    o = torch.zeros(N)
    run = lambda kind: lambda x: mapped[(16,)](x, o, N, KIND=kind, B=16)  # noqa: E731
    return {
        "copy": shares(run("copy")),
        "relu": shares(run("relu")),
        "zero": shares(run("zero")),
        "one program": shares(run("one program")),
        "filled": shares(lambda x: filled[(16,)](o, 0.25, N, B=16)),
        "larger": shares(lambda x: larger[(128,)](x, o)),
        "picked": shares(lambda x: picked[(128,)](x, o)),
        "added to zeros": shares(lambda x: added[(1,)](x, torch.zeros(N), N, B=N)),
        "added up": shares(lambda x: added[(2,)](torch.cat([x, x]), torch.zeros(N), N, B=N)),
        "counted": shares(lambda x: counted[(1,)](torch.randn(N), torch.zeros(N), N, B=N)),
        "both": shares(lambda x: both[(16,)](x, o, torch.empty(N), N, B=16)),
    }


def case_ablation():
    """What arrives when kinds of stores are left out, after a forward that shows what they are."""
    x, seen = torch.randn(N), {}

    def run():
        o, p, q = torch.zeros(3, N)
        both[(16,)](x, o, p, N, B=16)
        filled[(16,)](q, 0.25, N, B=16)
        return [bool(tensor.any()) for tensor in (o, p, q)]

    forward(run)
    for name, options in {
        "everything": {}, "computed": {"kept": ["moves", "constant"]}, "moved too": {"kept": ["constant"]},
        "second launch": {"only": [1]}, "first, computed": {"kept": ["moves", "constant"], "only": [0]},
    }.items():  # fmt: skip
        with torch.no_grad(), DEVICE.suppress_launches(**options), DEVICE.record():
            seen[name] = run()
    return {**seen, "afterwards": run()}


def tuned_kernel(sizes, hook=None, **options):
    configs = [triton.Config({"B": size}, pre_hook=hook) for size in sizes]

    @triton.autotune(configs=configs, key=["n"], **options)
    @triton.jit
    def doubled(x, o, n, B: tl.constexpr):
        tl.static_assert(B <= 4096)
        c = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(o + c, 2.0 * tl.load(x + c, mask=c < n), mask=c < n)
        tl.store(o + N_OUT + tl.program_id(0), 1.0)

    return doubled


N_OUT: tl.constexpr = N
GRID = lambda meta: (triton.cdiv(N, meta["B"]),)  # noqa: E731


def price(events):
    return [(event["name"], event["grid"], event["bytes"], event["flops"]) for event in events]


def tune(sizes, **options):
    x, o, kernel = torch.randn(N), torch.zeros(2 * N), tuned_kernel(sizes, **options)
    events = forward(lambda: kernel[GRID](x, o, N))
    again = forward(lambda: kernel[GRID](x, o, N))
    return {
        "launches": len(events),
        "grid": events[0]["grid"],
        "same": len(again) == 1 and price(events) == price(again),
        "exact": torch.equal(o[:N], 2 * x),
        "written": int(o[N:].sum()),
        "timings": len(getattr(kernel, "configs_timings", ())),
    }


def case_tuning():
    """Sixteen small programs have more of the GPU than one large one."""
    calls = []

    def hook(args):
        calls.append(1)

    seen = {
        "worst first": tune([256, 16]),
        "best first": tune([16, 256]),
        "asserted": tune([8192, 64, 16]),
        "many": tune([256] * 70 + [16]),
        "hooked": tune([256, 16], hook=hook),
        "pruned": tune([16, 256, 64], prune_configs_by={"early_config_prune": lambda configs, *a, **k: configs[1:]}),
        "modelled": tune([256, 16, 64], prune_configs_by={"perf_model": lambda B, **k: -B, "top_k": 2}),
    }
    return {**seen, "hook calls": len(calls)}


def case_restored():
    """Tuning in place: memory is what the chosen configuration alone would leave."""

    @triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 256})], key=["n"])
    @triton.jit
    def doubled_(x, n, B: tl.constexpr):
        c = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(x + c, 2.0 * tl.load(x + c, mask=c < n), mask=c < n)

    x = torch.randn(N)
    wanted = 2 * x
    forward(lambda: doubled_[GRID](x, N))
    return torch.equal(x, wanted)


def case_by_hand():
    """A program that launches inside the benchmark function gets a time and nothing else."""
    x, o, kernel = torch.randn(N), torch.zeros(N), tuned_kernel([16, 256])
    found = []
    events = forward(lambda: found.append(kernel.do_bench(lambda: mapped[(16,)](x, o, N, KIND="relu", B=16))))
    return {"events": events, "ms": found[0], "untouched": not o.any()}


if __name__ == "__main__":
    cases = {name: case for name, case in globals().items() if name.startswith("case_")}
    print(json.dumps({name.removeprefix("case_"): case() for name, case in cases.items()}))
