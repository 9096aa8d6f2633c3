# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels of every function and type that Triton has for a GPU, and asks the emulator for each instruction.

    python -m tests.env.emulator.sweep CAPABILITY FIRST STEP RANDOM

takes each `STEP`-th listed kernel from `FIRST` on, and so many random ones; prints a line of JSON: how many kernels
compile, how many Triton refuses, and for each instruction that the emulator does not know the sentence that says so.
"""

import collections
import importlib.util
import inspect
import itertools
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra.cuda import libdevice

from verl_kernel.env.emulator import driver
from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.lowering.function import module
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.emulator.ptx.program import BITS, Immediate, Instruction, OperandGroup, PtxProgram, Register

HALVES, SIGNED, UNSIGNED = ("fp16", "bf16"), ("i8", "i16", "i32", "i64"), ("u8", "u16", "u32", "u64")
FLOATS, EIGHT, INTEGERS = (*HALVES, "fp32", "fp64"), ("fp8e4nv", "fp8e5"), (*SIGNED, *UNSIGNED)
TYPES = (*FLOATS, *INTEGERS)
NAMES = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8e4nv",
    "fp8e5": "float8e5", "i1": "int1", **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
ORDERS, SCOPES = ("relaxed", "acquire", "release", "acq_rel"), ("cta", "gpu", "sys")


@dataclass(frozen=True)
class Case:
    """A kernel: statements that make `r` of the numbers `a`, `b`, `c` at the places `i`, or a whole body."""

    code: str
    kinds: tuple[str, ...] = ("fp32",)
    """Types of the numbers that are read, and of what is written, if it is another one."""
    result: str = ""
    size: int = 256
    warps: int = 4
    stages: int = 2
    is_whole: bool = False
    """Whether the code loads and stores by itself, by the pointers `pa`, `pb`, `pc`, `out`."""


def element_wise() -> Iterator[Case]:
    for kind in TYPES:
        for name in "abs exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf floor ceil".split():
            yield Case(f"r = tl.{name}(a)", (kind,))
        for code in "-a|~a|not a|tl.sigmoid(a)|tl.softmax(a)|a.to(tl.int1)|a * 1.5|a + 7|1 / a".split("|"):
            yield Case(f"r = {code}", (kind,))
        for sign in ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>"):
            yield Case(f"r = a {sign} b", (kind,) * 2)
        for sign in ("<", "<=", "==", "!=", ">", ">="):
            yield Case(f"r = a {sign} b", (kind,) * 2, "i8")
            yield Case(f"r = tl.where(a {sign} b, a, c)", (kind,) * 3)
        for call in (
            "minimum(a, b)", "maximum(a, b)", "minimum(a, b, propagate_nan=tl.PropagateNan.ALL)", "fdiv(a, b)",
            "maximum(a, b, propagate_nan=tl.PropagateNan.ALL)", "div_rn(a, b)", "umulhi(a, b)", "cdiv(a, b)",
            "clamp(a, b, c)", "clamp(a, b, c, propagate_nan=tl.PropagateNan.ALL)", "fma(a, b, c)",
            "clamp(a, -6.0, 6.0)", "maximum(a, 0.0)", "where(a > 0, a, a * 0.1)",
        ):  # fmt: skip
            for warps in (1, 4):
                yield Case(f"r = tl.{call}", (kind,) * 3, warps=warps)
        yield Case("r = a + b.to(a.dtype)", (kind, "fp32"))
        for other in SIGNED:
            yield Case("r = a * b", (kind, other))


def casts() -> Iterator[Case]:
    kinds = (*TYPES, *EIGHT, "i1")
    for kind, target in itertools.product(kinds, kinds):
        source = "i8" if kind == "i1" else kind
        taken = "a != 0" if kind == "i1" else "a"
        for size in (32, 512):
            result = "i8" if target == "i1" else target
            yield Case(f"r = ({taken}).to(tl.{NAMES[target]})", (source,), result, size, 1)
        yield Case(f"r = a.to(tl.{NAMES[target]}, bitcast=True)", (source,), target)
        for way in ("rtne", "rtz"):
            yield Case(f"r = a.to(tl.{NAMES[target]}, fp_downcast_rounding='{way}')", (source,), target)
    for code in ("r = ((a & 15) << 28 >> 28).to(tl.float16) * 0.5", "r = ((a >> 4) & 15).to(tl.bfloat16) - 8"):
        for kind in ("i8", "u8", "i32"):
            yield Case(code, (kind,), "fp16")


def accesses() -> Iterator[Case]:
    """Loads and stores of each width, with and without masks, by every modifier; atomics of every kind."""
    for kind, (size, warps) in itertools.product((*TYPES, *EIGHT), ((32, 1), (64, 1), (128, 1), (512, 1), (1024, 4))):
        for mask in ("", ", mask=i < n", ", mask=i < n, other=0"):
            code = f"tl.store(out + i, tl.load(pa + i{mask}){mask.split(', other')[0]})"
            yield Case(code, (kind,), kind, size, warps, is_whole=True)
    for kind in (*TYPES, *EIGHT):
        yield Case("tl.store(out, tl.load(pa) + tl.load(pb))", (kind,) * 2, is_whole=True)
        yield Case("tl.store(out + i, tl.load(pa + 2 * i + 1), mask=(i & 3) != 1)", (kind,), is_whole=True)
        yield Case("tl.store(out + i, tl.load(pa + tl.load(pb + i)))", (kind, "i64"), kind, is_whole=True)
    evicted = [f"eviction_policy='{name}'" for name in ("evict_first", "evict_last")]
    loads = [*(f"cache_modifier='.{name}'" for name in ("ca", "cg", "cv")), *evicted, "volatile=True"]
    loads += ["cache_modifier='.cg', eviction_policy='evict_first'"]
    stores = [*(f"cache_modifier='.{name}'" for name in ("wb", "cg", "cs", "wt")), *evicted]
    codes = [f"tl.store(out + i, tl.load(pa + i, {more}))" for more in loads]
    codes += [f"tl.store(out + i, tl.load(pa + i), {more})" for more in stores]
    for code, kind, size in itertools.product(codes, ("i8", "fp16", "fp32", "fp64"), (128, 1024)):
        yield Case(code, (kind,), kind, size, is_whole=True)
    for name, kind in itertools.product("add max min and or xor xchg cas".split(), TYPES):
        other = "tl.load(pa + i), tl.load(pb + i)" if name == "cas" else "tl.load(pa + i)"
        for more in ("", ", mask=i < n") if name != "cas" else ("",):
            yield Case(f"tl.atomic_{name}(out + i, {other}{more})", (kind,) * 2, is_whole=True)
            yield Case(f"tl.store(pc + i, tl.atomic_{name}(out + i, {other}{more}))", (kind,) * 3, is_whole=True)
            yield Case(f"tl.atomic_{name}(out, {other.replace(' + i', '')})", (kind,) * 2, is_whole=True)
        for size in (64, 1024):
            yield Case(f"tl.atomic_{name}(out + i, {other})", (kind,) * 2, size=size, warps=1, is_whole=True)
    for order, scope, name in itertools.product(ORDERS, SCOPES, ("add", "max", "xchg", "cas")):
        other = "tl.load(pa + i), tl.load(pb + i)" if name == "cas" else "tl.load(pa + i)"
        for kind in ("i32", "fp32", "fp16", "bf16", "i64"):
            code = f"tl.atomic_{name}(out + i, {other}, sem='{order}', scope='{scope}')"
            yield Case(f"tl.store(pc + i, {code})", (kind,) * 3, is_whole=True)
            yield Case(code, (kind,) * 3, is_whole=True)


TWO = "x = tl.reshape(a, (16, S // 16))"


def reductions() -> Iterator[Case]:
    """Reductions, scans, sorts and changes of shape, of one and two dimensions."""
    names = "sum max min argmax argmin xor_sum reduce_or".split()
    for kind, warps in itertools.product(TYPES, (1, 4)):
        for name in names:
            yield Case(f"r = tl.{name}(a, 0)", (kind,), kind, 256, warps)
            for axis in (0, 1):
                code = f"{TWO}; r = tl.reshape(x + tl.expand_dims(tl.{name}(x, {axis}), {axis}), (S,))"
                yield Case(code, (kind,), kind, 512, warps)
        for name in ("cumsum", "cumprod"):
            for reverse in (False, True):
                yield Case(f"r = tl.{name}(a, 0, reverse={reverse})", (kind,), kind, 256, warps)
            yield Case(f"{TWO}; r = tl.reshape(tl.{name}(x, 1), (S,))", (kind,), kind, 256, warps)
        yield Case("r = tl.sort(a)", (kind,), kind, 128, warps)
        yield Case("r = tl.sort(a, descending=True)", (kind,), kind, 32, warps)
        yield Case("r = tl.sum(tl.topk(a, 8), 0)", (kind,), kind, 128, warps)
        yield Case("r = tl.flip(a)", (kind,), kind, 128, warps)
        yield Case("r = tl.max(a, 0, return_indices=True)[1]", (kind,), "i32", 128, warps)
        yield Case("r = tl.reduce(a, 0, product)", (kind,), kind, 128, warps)
        yield Case("r = tl.associative_scan(a, 0, product)", (kind,), kind, 128, warps)
        yield Case("r, s = tl.associative_scan((a, b), 0, affine)", (kind, kind), kind, 128, warps)
    for kind in (*TYPES, *EIGHT):
        yield Case("r = tl.gather(a, (i * 7) % S, 0)", (kind,), kind, 128)
        yield Case("r = tl.gather(a, (i * 7) % S, 0)", (kind,), kind, 32, 1)
        yield Case(f"{TWO}; r = tl.reshape(tl.trans(x), (S,))", (kind,), kind)
        yield Case(f"{TWO}; r = tl.ravel(tl.permute(x, (1, 0)))", (kind,), kind, 2048)
        yield Case("r = tl.sum(tl.interleave(a, b).to(tl.float32), 0)", (kind, kind), "fp32")
        yield Case("r, s = tl.split(tl.reshape(a, (S // 2, 2))); r = tl.reshape(tl.join(s, r), (S,))", (kind,), kind)
        yield Case("r = tl.sum(tl.cat(a, b, can_reorder=True).to(tl.float32), 0)", (kind, kind), "fp32")
        yield Case("r = tl.sum(tl.broadcast_to(tl.reshape(a, (S, 1)), (S, 4)).to(tl.float32), 1)", (kind,), "fp32")
    for kind, size, warps in itertools.product(INTEGERS, (32, 256), (1, 4)):
        yield Case("r = tl.sum(tl.histogram(a, 64), 0)", (kind,), "i32", size, warps)
        yield Case("r = tl.sum(tl.histogram(a, 64, mask=i < n), 0)", (kind,), "i32", size, warps)


DOT = """
m = tl.arange(0, {m})[:, None]; k = tl.arange(0, {k}); o = tl.arange(0, {n})[None, :]
t = tl.zeros(({m}, {n}), tl.{total})
for step in range(0, n, {k}):
    x = tl.load(pa + m * n + (k + step)[None, :])
    y = tl.load(pb + (k + step)[:, None] * 64 + o)
    t = tl.dot({left}, {right}, t{more}, out_dtype=tl.{total})
tl.store(out + m * {n} + o, t.to(out.dtype.element_ty))
"""
SCALED = """
m = tl.arange(0, 64)[:, None]; o = tl.arange(0, 64)[None, :]
x = tl.load(pa + m * 64 + tl.arange(0, {left})[None, :]); y = tl.load(pb + tl.arange(0, {right})[:, None] * 64 + o)
s = tl.load(pc + m * 2 + tl.arange(0, 2)[None, :])
t = tl.dot_scaled(x, s, '{first}', y, s, '{second}')
tl.store(out + m * 64 + o, t)
"""
KINDS = [(kind, kind) for kind in (*FLOATS, *EIGHT, "i8", "u8")] + [EIGHT, EIGHT[::-1]]
SHAPES = ((16, 16, 16), (64, 64, 32), (128, 64, 64), (16, 64, 128))
SUMS = {"fp64": ("float64",), "i8": ("int32",), "u8": ("int32",), "fp16": ("float32", "float16")}
MORE = {
    "fp32": ("", ", input_precision='ieee'", ", input_precision='tf32x3'"),
    **dict.fromkeys(EIGHT, ("", ", max_num_imprecise_acc=32")),
}  # fmt: skip
HELD = {"e2m1": ("u8", 32), "e4m3": ("u8", 64), "e5m2": ("u8", 64), "fp16": ("fp16", 64), "bf16": ("bf16", 64)}


def products() -> Iterator[Case]:
    for kinds, (m, n, k), stages, warps in itertools.product(KINDS, SHAPES, (1, 3), (1, 4, 8)):
        for total in SUMS.get(kinds[0], ("float32",)):
            sizes = {"m": m, "n": n, "k": k, "total": total}
            sums = {"float64": "fp64", "int32": "i32"}.get(total, "fp32")
            for more in MORE.get(kinds[0], ("",)):
                code = DOT.format(left="x", right="y", more=more, **sizes)
                yield Case(code, kinds, sums, 1, warps, stages, True)
            code = DOT.format(left="x", right="tl.trans(tl.trans(y) + 0)", more="", **sizes)
            yield Case(code, kinds, sums, 1, warps, stages, True)
    for source, target in itertools.product((*EIGHT, "i8", "u8", *HALVES, "fp32"), (*HALVES, "fp32", *EIGHT)):
        for (warps, stages), y in itertools.product(((4, 3), (8, 1)), ("y", "(y * 2)")):
            cast, sizes = f".to(tl.{NAMES[target]})", {"m": 64, "n": 64, "k": 64, "total": "float32"}
            code = DOT.format(left=f"x{cast}", right=f"{y}{cast}", more="", **sizes)
            yield Case(code, (source, source), "fp32", 1, warps, stages, True)
    for first, second in itertools.product(HELD, HELD):
        code = SCALED.format(first=first, second=second, left=HELD[first][1], right=HELD[second][1])
        yield Case(code, (HELD[first][0], HELD[second][0], "u8"), "fp32", 1, 4, 2, True)


TILES = """
m = tl.arange(0, 32)[:, None]; o = tl.arange(0, 32)[None, :]
p = {p}
q = {q}
x = {load}
{store}
"""
POINTER = "tl.make_block_ptr(pa, (n, n), (n, 1), (0, 0), (32, 32), (1, 0))"
TILE = "tl.make_tensor_descriptor({}, (n, 64), (64, 1), ({}, 32))"
CHECKS = (
    "", "boundary_check=(0, 1)", "boundary_check=(0, 1), padding_option='zero'",
    "boundary_check=(1,), padding_option='nan'",
)  # fmt: skip


def tiles() -> Iterator[Case]:
    for kind in (*TYPES, *EIGHT):
        for more in CHECKS:
            made = {"p": POINTER, "q": "0", "load": f"tl.load(p, {more})", "store": "tl.store(out + m * 32 + o, x)"}
            yield Case(TILES.format(**made), (kind,), kind, is_whole=True)
        for change in ("store", *(f"atomic_{name}" for name in ("add", "max", "min", "and", "or", "xor"))):
            made = {"p": TILE.format("pa", 32), "q": TILE.format("out", 32), "load": "p.load([32, 0])"}
            yield Case(TILES.format(**made, store=f"q.{change}([0, 32], x)"), (kind,), kind, is_whole=True)
        made = {"p": TILE.format("pa", 1), "q": TILE.format("out", 1), "load": "p.gather(tl.arange(0, 32), 0)"}
        yield Case(TILES.format(**made, store="q.scatter(x, tl.arange(0, 32), 0)"), (kind,), kind, is_whole=True)


WAYS = (
    "range(0, n)", "range(n, 0, -1)", "range(tl.program_id(0), n, tl.num_programs(0))", "tl.static_range(0, 4)",
    "tl.range(0, n, num_stages=3)", "tl.range(0, n, loop_unroll_factor=3)", "tl.range(0, n, flatten=True)",
    "tl.range(0, n, warp_specialize=True)", "tl.range(0, n, disallow_acc_multi_buffer=True)",
)  # fmt: skip
LOOP = "r = tl.zeros((S,), tl.float32)\nfor k in {way}:\n    {body}\ntl.store(out + i, r)"
WHOLE = (
    "k = 0\nwhile tl.load(pa + k) < n:\n    k += 1\ntl.store(out, k)",
    "k = tl.atomic_cas(pb, 0, 1)\nwhile k == 1:\n    k = tl.atomic_cas(pb, 0, 1)\ntl.atomic_xchg(pb, 0)",
    "a = tl.load(pa + i)\nif tl.max(a, 0) > 3:\n    a = a * 2\nelse:\n    a = tl.cumsum(a, 0)\ntl.store(out + i, a)",
    "a = tl.load(pa + i)\nfor k in range(n):\n    if k == 5:\n        return\n    a += k\ntl.store(out + i, a)",
    "tl.store(out + i, tl.load(pa + i))\ntl.debug_barrier()\ntl.store(out + i + 1, tl.load(out + S - i))",
    "tl.store(out + i, tl.map_elementwise(chosen, tl.load(pa + i), tl.load(pb + i)))",
    "tl.store(out + i, apart(tl.load(pa + i), 3))", "tl.store(out + i, tl.num_programs(1))",
    "tl.device_print('x', tl.load(pa + i))", "tl.device_print('x', n, hex=True)",
    "tl.device_assert(tl.load(pa + i) < n, 'x')", "tl.assume(n > 3)\ntl.store(out + i, n)",
    "tl.store(out + i, tl.extra.cuda.globaltimer())", "tl.store(out + i, tl.extra.cuda.smid())",
    "tl.store(out + i, tl.extra.cuda.num_threads())", "tl.extra.cuda.gdc_wait()\ntl.store(out + i, 1)",
    "tl.extra.cuda.gdc_launch_dependents()\ntl.store(out + i, 1)", "tl.debug_barrier()\ntl.store(out + i, 1)",
)  # fmt: skip


def the_rest() -> Iterator[Case]:
    """Random numbers, loops, calls, prints and assertions; functions of NVIDIA's library."""
    for name in ("rand", "randn", "randint", "rand4x", "randn4x", "randint4x"):
        for kind, rounds in itertools.product(("i32", "i64"), (6, 10)):
            last = "" if not name.endswith("4x") else "[2]"
            yield Case(f"r = tl.{name}(n, a, n_rounds={rounds}){last}", (kind,), "fp32")
    for way in WAYS:
        for body in ("r += tl.load(pa + i + k * S)", "if k % 3 == 0: r += tl.load(pa + i + k)",
                     "r = r * 0.5 + tl.sum(tl.load(pa + i + k * S).to(tl.float32), 0)"):  # fmt: skip
            for kind, stages in itertools.product(("fp16", "fp32", "i8", "fp64"), (1, 4)):
                yield Case(LOOP.format(way=way, body=body), (kind,), "fp32", 512, 4, stages, True)
    for code, kind in itertools.product(WHOLE, ("i32", "fp32", "i64", "fp16")):
        yield Case(code, (kind,) * 2, is_whole=True)
    for name, function in inspect.getmembers(libdevice, callable):
        text = inspect.getsource(getattr(function, "__wrapped__", function)) if not name.startswith("_") else ""
        for given in re.findall(r"^\s*\(((?:core\.dtype\(\"\w+\"\),? ?)+)\): \(", text, re.M):
            kinds = tuple(re.sub("^u?int", lambda match: match[0][:-2], kind) for kind in re.findall(r'"(\w+)"', given))
            yield Case(f"r = libdevice.{name}({', '.join('abcd'[: len(kinds)])})", kinds)


def listed() -> list[Case]:
    families = (element_wise, casts, accesses, reductions, products, tiles, the_rest)
    found = [case for family in families for case in family()]
    random.Random(0).shuffle(found)
    return found


UNARY = (
    "-{0} ~{0} tl.abs({0}) tl.exp({0}) tl.log({0}) tl.sin({0}) tl.sqrt({0}) tl.rsqrt({0}) tl.floor({0}) tl.erf({0}) "
    "tl.sigmoid({0}) tl.cumsum({0},0) tl.sort({0}) tl.flip({0}) tl.sum({0},0) tl.max({0},0) "
    "tl.trans(tl.reshape({0},(16,S//16))).reshape(S)"
).split()
BINARY = (
    "{0}+{1} {0}-{1} {0}*{1} {0}/{1} {0}//{1} {0}%{1} {0}&{1} {0}|{1} {0}^{1} {0}<<{1} {0}>>{1} ({0}<{1}) "
    "tl.minimum({0},{1}) tl.maximum({0},{1}) tl.where({0}>0,{1},1) tl.fma({0},{1},2)"
).split()


def made_up(rng: random.Random) -> Case:
    def expression(depth: int) -> str:
        if depth == 0 or rng.random() < 0.1:
            return rng.choice("abcai")
        if rng.random() < 0.25:
            return f"({expression(depth - 1)}).to(tl.{NAMES[rng.choice((*TYPES, *EIGHT, 'i1'))]})"
        one = rng.choice(UNARY) if rng.random() < 0.45 else rng.choice(BINARY)
        return "(" + one.format(*(expression(depth - 1) for _ in range(2))) + ")"

    kinds = tuple(rng.choice((*TYPES, *EIGHT)) for _ in range(3))
    size, warps = rng.choice((32, 64, 128, 256, 512)), rng.choice((1, 2, 4, 8))
    return Case(f"r = {expression(rng.randint(2, 5))}", kinds, rng.choice(TYPES), size, warps)


HEAD = """
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

@triton.jit
def product(x, y):
    return x * y

@triton.jit
def affine(x, y, z, w):
    return x * z, y * z + w

@triton.jit(noinline=True)
def apart(x, y):
    return x * 2 + y

@triton.jit
def chosen(x, y):
    if x > y:
        return x * 2
    else:
        return y - x
"""


def written(number: int, case: Case) -> str:
    body = case.code
    if not case.is_whole:
        loads = "".join(f"{name} = tl.load(p{name} + i)\n" for name, _ in zip("abcd", case.kinds, strict=False))
        body = f"{loads}{case.code}\ntl.store(out + i, r)"
    lines = ["i = tl.program_id(0) * S + tl.arange(0, S)", *body.strip("\n").split("\n")]
    head = f"@triton.jit(debug={'device_assert' in body})\ndef k{number}(pa, pb, pc, pd, out, n, S: tl.constexpr):"
    return "\n".join([head, *(f"    {line}" for line in lines), ""])


def compiled(function: object, case: Case, capability: int) -> str:
    """The PTX of a case (raises what Triton raises)."""
    kinds = [*case.kinds, *["i32"] * 4][:4]
    pointers = zip(("pa", "pb", "pc", "pd", "out"), (*kinds, case.result or kinds[0]), strict=True)
    signature = {**{name: f"*{kind}" for name, kind in pointers}, "n": "i32", "S": "constexpr"}
    attributes = {(place,): [["tt.divisibility", 16]] for place in range(6)}
    source = ASTSource(function, signature, {"S": case.size}, attributes)
    options = {"num_warps": case.warps, "num_stages": case.stages}
    return triton.compile(source, GPUTarget("cuda", capability or driver.CAPABILITY, 32), options).asm["ptx"]


def only_ptx(backend=None, stages=None, options=None, language=None, capability=0):
    """Leave the assembler out."""
    if stages is None:
        return "sweep", "sweep"
    stages["cubin"] = lambda ptx, metadata: ptx.encode()


def unknown(ptx: str, warps: int) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a kernel that the emulator does not know, with its sentences."""
    try:
        program = parse(ptx)
    except NotKnown as why:
        yield "", str(why)
        return
    while True:
        try:
            module(program, warps)
            return
        except NotKnown as why:
            place = next((at for at, item in enumerate(program.instructions) if f"`{item.text}`" in str(why)), None)
            if place is None:
                yield "", str(why)
                return
            yield program.instructions[place].opcode, str(why)
            program.instructions[place] = stand_in(program, program.instructions[place])


def stand_in(program: PtxProgram, item: Instruction) -> Instruction:
    """An instruction that writes zeros to the same registers."""
    first = item.operands[0] if item.operands else None
    parts = first.items if isinstance(first, OperandGroup) else (first,)
    targets = [part for part in parts if isinstance(part, Register)]
    opcode, operands = "membar.gl", ()
    if targets:
        bits = BITS[program.registers[targets[0].name]]
        opcode, operands = f"mov.b{bits}" if bits > 1 else "mov.pred", (targets[0], Immediate("0"))
    return replace(item, opcode=opcode, operands=operands, guard=None, text="")


def report(function: object, case: Case, capability: int) -> dict[str, object]:
    try:
        ptx = compiled(function, case, capability)
    except Exception as exc:  # noqa: BLE001  what Triton refuses is none of the emulator's
        return {"refused": type(exc).__name__}
    opcodes = {match[1] for match in re.finditer(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)[ \t;]", ptx, re.M)}
    return {"opcodes": sorted(opcodes), "unknown": dict(unknown(ptx, case.warps))}


def in_child(function: object, case: Case, capability: int) -> dict[str, object]:
    """The same from a process of its own, which Triton's compiler may end."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writing, "w") as pipe:
            json.dump(report(function, case, capability), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if not status else {"ended": f"signal {status}"}


def main(capability: int, first: int, step: int, count: int) -> None:
    """Compile for a GPU, or, by capability 0, as the emulator's driver does; and look."""
    if capability:
        driver.change_stages(only_ptx)
    else:
        driver.activate()
    rng = random.Random(first)
    cases = [Case("r = a"), *listed()[first::step], *(made_up(rng) for _ in range(count))]
    refused, opcodes, sentences, ended = collections.Counter(), set(), {}, {}
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = f"{folder}/cache"
        path = Path(folder) / "kernels.py"
        path.write_text(HEAD + "\n".join(written(number, case) for number, case in enumerate(cases)))
        spec = importlib.util.spec_from_file_location("kernels", path)
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        compiled(kernels.k0, cases[0], capability)  # what a first compilation loads is there for all
        for number, case in enumerate(cases):
            found = in_child(getattr(kernels, f"k{number}"), case, capability)
            if "ended" in found:
                ended[written(number, case)] = found["ended"]
            elif "refused" in found:
                refused[found["refused"]] += 1
            else:
                opcodes.update(found["opcodes"])
                for opcode, sentence in found["unknown"].items():
                    sentences.setdefault(opcode or sentence, [sentence, case.code])
    row = {"cases": len(cases), "refused": refused, "opcodes": sorted(opcodes), "unknown": sentences, "ended": ended}
    print(json.dumps(row))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
