# SPDX-License-Identifier: Apache-2.0
"""A recording as a program: names of other modules become the program's own, and calls are repeated as they were."""

import ast
import runpy
from collections import namedtuple
from types import ModuleType

import pytest
import torch
import triton
import triton.language as tl
from triton.language import math as tl_math

from verl_kernel.env.inductor.kernel_texts import HEADER, KernelTexts, NotWritten
from verl_kernel.env.inductor.program_text import write_program
from verl_kernel.env.inductor.recording import Configuration, KernelCall, OpCall, Recording

HELPERS = ModuleType("torch._inductor.helpers")
"""Plays Inductor's module of helpers."""
SCALE: tl.constexpr = tl.constexpr(2.5)
OTHER = ModuleType("torch.other")


@triton.jit
def twice(x):
    return x * SCALE


@triton.jit
def larger(a, b):
    return tl.maximum(twice(a), tl_math.exp(b))


@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    twice = tl.load(x + i)  # the name of a helper, bound here
    tl.store(out + i, HELPERS.larger(twice, twice) + larger(twice, 1.0))


@triton.jit
def lacking(x):
    return OTHER.nothing(x)


HELPERS.larger = larger


def test_helpers_come_before_their_use_and_once():
    texts = KernelTexts()
    assert texts.name(kernel, ["triton.Config({'BLOCK': 16}, num_warps=1)"]) == "kernel"
    assert texts.name(kernel) == "kernel"
    names = [ast.parse(text).body[0].name for text in texts.texts]
    assert names == ["twice", "larger", "kernel"]
    assert "return x * 2.5" in texts.texts[0]
    assert "tl.maximum(twice(a), tl_math.exp(b))" in texts.texts[1]
    assert texts.texts[2].startswith(
        "@triton.autotune([triton.Config({'BLOCK': 16}, num_warps=1)], key=[])\n@triton.jit"
    )
    assert "twice = tl.load(x + i)" in texts.texts[2]
    assert "larger(twice, twice) + larger(twice, 1.0)" in texts.texts[2]
    compile(HEADER + "\n".join(texts.texts), "program", "exec")


def test_functions_of_one_name_get_several():
    def other():
        @triton.jit
        def twice(x):
            return x + x

        return twice

    texts = KernelTexts()
    assert texts.name(twice) == "twice"
    assert texts.name(other()) == "twice_1"
    assert "def twice_1(x):" in texts.texts[1]


def test_a_name_without_a_text_is_told():
    with pytest.raises(NotWritten, match="uses OTHER.nothing"):
        KernelTexts().name(lacking)


ATEN = torch.ops.aten
X, W = torch.ones(2, 3), torch.full((3, 4), 2.0)


def call(op, *args, **kwargs):
    return OpCall(op, args, kwargs, op(*args, **kwargs))


@pytest.fixture
def program(tmp_path):
    def write(recording):
        text = write_program("ModelNew", ((X,), {}), recording)
        file = tmp_path / "program.py"
        file.write_text(text)
        return text, runpy.run_path(str(file))["ModelNew"]

    return write


def test_calls_are_repeated_on_inputs_and_like_weights(program):
    out = call(ATEN.empty_strided.default, [2, 4], [4, 1], dtype=torch.float32, device=torch.device("cpu"))
    product = OpCall(ATEN.mm.out, (X, W), {"out": out.result}, out.result)
    large = call(ATEN.max.dim, out.result, 1)
    found = {"both": [large.result[0], out.result], "none": None, "number": float("inf")}
    text, model = program(Recording([out, product, large], 1, found))
    made = model(5, scale=2)
    assert made.w0.shape == W.shape
    assert made.w0.stride() == W.stride()
    made.w0.fill_(3.0)
    answer = made(X)
    assert torch.equal(answer["both"][0], torch.full((2,), 9.0))
    assert torch.equal(answer["both"][1], torch.full((2, 4), 9.0))
    assert answer["none"] is None
    assert answer["number"] == float("inf")
    assert text.count("torch.ops.aten.mm.out(inputs[0], self.w0, out=t1)") == 1


def test_an_output_that_is_an_input_stays_one(program):
    _, model = program(Recording([], 0, (X, W)))
    answer = model()(X)
    assert answer[0] is X
    assert answer[1].shape == W.shape


def test_a_launch_has_all_configurations_and_their_grids(program):
    ways = (Configuration({"BLOCK": 16}, 1, 2, (4, 1, 1)), Configuration({"BLOCK": 64}, 4, 1, (1, 1, 1)))
    text, _ = program(Recording([KernelCall(kernel, {"x": X, "out": X}, ways)], 1, X))
    assert "triton.Config({'BLOCK': 16}, num_warps=1, num_stages=2), triton.Config({'BLOCK': 64}, num_warps=4" in text
    assert (
        "kernel[lambda meta: {(16,): (4, 1, 1), (64,): (1, 1, 1)}[(meta['BLOCK'], )]](x=inputs[0], out=inputs[0])"
        in text
    )


@pytest.mark.parametrize("value", [object(), namedtuple("Pair", "a b")(1, 2), {1}])
def test_what_has_no_text_is_told(program, value):
    with pytest.raises(NotWritten, match=f"type {type(value).__name__}"):
        program(Recording([], 0, value))
