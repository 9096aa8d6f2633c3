# SPDX-License-Identifier: Apache-2.0
"""Programs that differ in names, numbers and comments only have one normal form; others do not."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.data.families import normal_form, shingles, similarity

REFERENCE = '''
"""A module."""
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16

class Model(nn.Module):
    """What it does."""
    def __init__(self, size: int, scale=2.0):
        super(Model, self).__init__()
        self.linear = nn.Linear(size, 4)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)  # first
        x = F.relu(x) * self.scale
        return x.sum(dim=1)

def get_inputs():
    return [torch.rand(BATCH, 8)]

def get_init_inputs():
    return [8]
'''


def changed(*pairs):
    text = REFERENCE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("pairs", [
    [("x", "value")], [("Model", "Block")], [("scale", "factor"), ("linear", "first_layer")],
    [("(size, 4)", "(size, 512)"), ("2.0", "0.5"), ("dim=1", "dim=-1")],
    [('    """What it does."""\n', ""), ("  # first", ""), ('"""A module."""\n', "")],
    [("super(Model, self)", "super()")], [(": torch.Tensor) -> torch.Tensor", ")"), ("size: int", "size")],
    [("F.relu", "torch.relu")], [("F.relu(x)", "x.relu()")],
    [("F.relu", "nn.functional.relu"), ("import torch.nn.functional as F\n", "")], [("nn.Linear", "torch.nn.Linear")],
    [("import torch.nn as nn", "from torch import nn")],
    [("nn.Linear", "Linear"), ("import torch.nn as nn", "from torch import nn\nfrom torch.nn import Linear")],
    [("torch.rand(BATCH, 8)", "torch.randn(3, 8) * 2"), ("BATCH = 16\n", "")],
])  # fmt: skip
def test_spelling_does_not_matter(pairs):
    assert normal_form(changed(*pairs)) == normal_form(REFERENCE)


@pytest.mark.parametrize(
    "pair",
    [("relu", "gelu"), ("* self.scale", "+ self.scale"), (".sum(", ".mean("), ("nn.Linear", "nn.Bilinear"),
     ("        x = self.linear(x)  # first\n", "")],
)  # fmt: skip
def test_what_is_computed_does(pair):
    assert normal_form(changed(pair)) != normal_form(REFERENCE)
    assert 0.5 < similarity(shingles(normal_form(changed(pair))), shingles(normal_form(REFERENCE))) < 1


KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    tl.store(out_ptr + at, tl.exp(x) * 2.0, mask=at < size)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out.sum(dim=1)
"""
OWN = ("scaled", "x_ptr", "out_ptr", "size", "BLOCK", "at", "x", "out", "ModelNew")
"""The kernel's own names."""


def renamed(names):
    tree = ast.parse(KERNEL)
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            if getattr(node, field, None) in names and not isinstance(node, ast.alias):
                setattr(node, field, names[getattr(node, field)])
    return ast.unparse(tree)


@given(st.permutations(["a", "b", "sum", "max", "input", "kernel", "load", "exp", "BLOCK_SIZE", "size"]))
def test_names_of_a_kernel_do_not_matter(names):
    assert normal_form(renamed(dict(zip(OWN, names, strict=False)))) == normal_form(KERNEL)


@given(st.lists(st.text("abc# ", max_size=8), min_size=3, max_size=30))
def test_comments_do_not_matter(texts):
    lines = zip(KERNEL.splitlines(), [*texts, *[""] * 30], strict=False)
    assert normal_form("\n".join(f"{line}  # {text}" for line, text in lines)) == normal_form(KERNEL)


@pytest.mark.parametrize(
    ("old", "new"),
    [("exp", "sqrt"), ("* 2.0", "+ 2.0"), ("mask=at < size, other=0.0", "mask=at < size"), ("dim=1", "axis=1"),
     ("tl.exp(x) * 2.0", "2.0 * tl.exp(x)"), ("at < size", "at <= size")],
)  # fmt: skip
def test_what_a_kernel_computes_does(old, new):
    assert old in KERNEL
    assert normal_form(KERNEL.replace(old, new)) != normal_form(KERNEL)


@pytest.mark.parametrize(
    ("old", "new"), [("1024", "64"), ("2.0", "0.5"), ("BLOCK", "TILE"), ("sum(dim=1)", "sum(dim=0)")]
)
def test_sizes_of_a_kernel_do_not_matter(old, new):
    assert normal_form(KERNEL.replace(old, new)) == normal_form(KERNEL)


def test_a_program_may_be_given_as_a_tree():
    assert normal_form(ast.parse(KERNEL)) == normal_form(KERNEL)


def test_similarity_is_the_share_of_common_stretches():
    one, other = shingles("a b c d e".split()), shingles("a b c d f".split())
    assert len(one) == len(other) == 2
    assert similarity(one, other) == pytest.approx(1 / 3)
    assert similarity(one, one) == 1
    assert similarity(one, shingles(["z"])) == 0
    assert len(shingles([])) == 1


def test_deeply_nested_programs_have_one_too():
    sums = "x" + " + x" * 600
    text = f"class Model:\n    def forward(self, x):\n        return {sums}\n"
    assert normal_form(text).count("Add") == 600
