# SPDX-License-Identifier: Apache-2.0
"""Texts of kernels: names of other modules become those of the program, and each helper is written once."""

import ast
from types import ModuleType

import pytest
import triton
import triton.language as tl
from triton.language import math as tl_math

from verl_kernel.env.inductor.kernel_texts import HEADER, KernelTexts, NotWritten

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


def test_what_has_no_text_is_told():
    with pytest.raises(NotWritten, match="uses OTHER.nothing"):
        KernelTexts().name(lacking)
