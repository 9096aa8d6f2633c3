# SPDX-License-Identifier: Apache-2.0
"""Bytes by tensor in a profile are those that a reader derives from the program by hand."""

import functools
import textwrap

import pytest

from tests.env.clocks.programs import DOT, THRICE
from tests.env.programs import elementwise, program, reference
from tests.tiers import thinned
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes
SECTOR = 32
ONE = "torch.randn(64, 1024)"
N = 64 * 1024


def kernel(signature, body):
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"\n@triton.jit\ndef k({signature}):\n{lines}\n"


AT = "at = tl.program_id(0) * B + tl.arange(0, B)\n"
OUT = "out = torch.empty_like(x)\n"
COPY = kernel("x, out, B: tl.constexpr", AT + "tl.store(out + at, tl.load(x + at) * 2.0)")
SUM = kernel("x, out, B: tl.constexpr", """
row = tl.program_id(0)
tl.store(out + row, tl.sum(tl.load(x + row * B + tl.arange(0, B)), 0))
""")  # fmt: skip
STRIDED = kernel("x, out, B: tl.constexpr", AT + "tl.store(out + at, tl.load(x + at * 8) * 2.0)")
BIAS = kernel("x, y, out, B: tl.constexpr", AT + "tl.store(out + at, tl.load(x + at) + tl.load(y + tl.arange(0, B)))")
COLUMN = kernel("x, out, rows, B: tl.constexpr", """
row, at = tl.program_id(0), tl.arange(0, B)
tl.store(out + at * rows + row, tl.load(x + row * B + at) * 2.0)
""")  # fmt: skip
GATHER = kernel("x, y, out, B: tl.constexpr", """
row, at = tl.load(y + tl.program_id(0)), tl.arange(0, B)
tl.store(out + tl.program_id(0) * B + at, tl.load(x + row * B + at) * 2.0)
""")  # fmt: skip
ATOMIC = kernel("x, out, B: tl.constexpr", AT + "tl.atomic_add(out, tl.sum(tl.load(x + at), 0))")
HALVES = "torch.randn(256, 256).half(), torch.randn(256, 256).half()"

# By program: task, candidate, and for each tensor what is read from L2, what is written there, and the least.
TRUTHS = {
    "copy": (reference("x * 2.0", ONE), program(COPY, OUT + f"k[({N // 1024},)](x, out, B=1024)\nreturn out"),
             {"x": (4 * N, 0, 4 * N), "out": (0, 4 * N, 4 * N)}),
    "masked": (reference("x * 2.0", "torch.randn(1008)"), elementwise("v * 2.0"),
               {"x": (4032, 0, 4032), "out": (0, 4032, 4032)}),
    # 1000 is no multiple of 16, so Triton stores one by one the four neighbours that a lane holds: each of the four
    # instructions touches every sector. The loads find them in the first-level cache.
    "masked, odd": (reference("x * 2.0", "torch.randn(1000)"), elementwise("v * 2.0"),
                    {"x": (4000, 0, 4000), "out": (0, 4 * 4000, 4000)}),
    "sums of rows": (
        reference("x.sum(1)", ONE), program(SUM, "out = x.new_empty(64)\nk[(64,)](x, out, B=1024)\nreturn out"),
        {"x": (4 * N, 0, 4 * N), "out": (0, SECTOR * 64, 4 * 64)},
    ),
    "every eighth": (
        reference("x[::8] * 2.0", f"torch.randn({N})"),
        program(STRIDED, f"out = x.new_empty({N // 8})\nk[({N // 8 // 1024},)](x, out, B=1024)\nreturn out"),
        {"x": (SECTOR * N // 8, 0, 4 * N // 8), "out": (0, 4 * N // 8, 4 * N // 8)},
    ),
    "bias": (reference("x + y", f"{ONE}, torch.randn(1024)", "x, y"),
             program(BIAS, OUT + "k[(64,)](x, y, out, B=1024)\nreturn out", "x, y"),
             {"x": (4 * N, 0, 4 * N), "y": (4 * 1024 * 64, 0, 4 * 1024), "out": (0, 4 * N, 4 * N)}),
    "three passes": (reference("torch.softmax(x, dim=1)", "torch.randn(16, 16384)"),
                     program(THRICE, OUT + "thrice[(16,)](x, out, 16384, BLOCK=1024)\nreturn out"),
                     {"x": (3 * 4 * 16 * 16384, 0, 4 * 16 * 16384), "out": (0, 4 * 16 * 16384, 4 * 16 * 16384)}),
    "columns are written": (reference("x.t().contiguous() * 2.0", ONE),
                            program(COLUMN, "out = x.new_empty(1024, 64)\nk[(64,)](x, out, 64, B=1024)\nreturn out"),
                            {"x": (4 * N, 0, 4 * N), "out": (0, SECTOR * N, 4 * N)}),
    "gather": (reference("x[y] * 2.0", f"{ONE}, torch.randperm(64)", "x, y"),
               program(GATHER, OUT + "k[(64,)](x, y, out, B=1024)\nreturn out", "x, y"),
               {"x": (4 * N, 0, 4 * N), "y": (SECTOR * 64, 0, 8 * 64), "out": (0, 4 * N, 4 * N)}),
    "atomics": (reference("x.sum().reshape(1)", ONE),
                program(ATOMIC, "out = x.new_zeros(1)\nk[(64,)](x, out, B=1024)\nreturn out"),
                {"x": (4 * N, 0, 4 * N), "out": (SECTOR * 64, SECTOR * 64, 8)}),
    "in place": (reference("x * 4.0", ONE),
                 program(COPY, f"out = x * 2.0\nk[({N // 1024},)](out, out, B=1024)\nreturn out"),
                 {"x/out": (4 * N, 4 * N, 8 * N)}),
    "product": (
        reference("x @ y", HALVES, "x, y"),
        program(DOT, OUT + "product[(4, 4)](x, y, out, 256, 256, B=64, BK=32)\nreturn out", "x, y"),
        {"a": (4 * 2 * 256 * 256, 0, 2 * 256 * 256), "b": (4 * 2 * 256 * 256, 0, 2 * 256 * 256),
         "out": (0, 2 * 256 * 256, 2 * 256 * 256)},
    ),
}  # fmt: skip
OPTIONS = GymOptions(device="cpu", correctness_trials=1)


@pytest.fixture(scope="module")
def profiles(judge):
    @functools.cache
    def profile(name):
        reference, source, _ = TRUTHS[name]
        result = judge.evaluate(Task(reference), source)
        assert result.rewarded, result.error
        return result.profile

    return profile


@pytest.mark.parametrize("name", thinned(TRUTHS, 12))
def test_bytes_of_tensors_are_those_of_the_program(name, profiles):
    (launch,) = profiles(name).launches
    wanted = TRUTHS[name][2]
    assert {one.name: (one.read, one.written, one.least) for one in launch.tensors} == wanted
    if name in ("copy", "masked", "bias", "gather", "columns are written"):  # device memory delivers every sector once
        assert launch.dram_bytes == sum(least for _, _, least in wanted.values())


@pytest.mark.exhaustive
def test_the_forward_needs_its_inputs_and_outputs_once(profiles):
    assert profiles("copy").least_bytes == 8 * N
    assert profiles("in place").least_bytes == 8 * N
    assert profiles("in place").dram_bytes >= 8 * N


@pytest.mark.exhaustive
def test_roles_follow_the_data(profiles):
    roles = {one.name: one.role for one in profiles("bias").launches[0].tensors}
    assert roles == {"x": "input", "y": "input", "out": "output"}
    assert [one.role for one in profiles("in place").launches[0].tensors] == ["output"]
