# SPDX-License-Identifier: Apache-2.0
"""References that differ in names, numbers and comments only have one normal form; others do not."""

import pytest

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


@pytest.mark.parametrize(
    "pairs",
    [
        [("x", "value")],
        [("Model", "Block")],
        [("scale", "factor"), ("linear", "first_layer")],
        [("(size, 4)", "(size, 512)"), ("2.0", "0.5"), ("dim=1", "dim=-1")],
        [('    """What it does."""\n', ""), ("  # first", ""), ('"""A module."""\n', "")],
        [("super(Model, self)", "super()")],
        [(": torch.Tensor) -> torch.Tensor", ")"), ("size: int", "size")],
        [("F.relu", "torch.relu")],
        [("F.relu(x)", "x.relu()")],
        [("F.relu", "nn.functional.relu"), ("import torch.nn.functional as F\n", "")],
        [("nn.Linear", "torch.nn.Linear")],
        [("import torch.nn as nn", "from torch import nn")],
        [("nn.Linear", "Linear"), ("import torch.nn as nn", "from torch import nn\nfrom torch.nn import Linear")],
        [("torch.rand(BATCH, 8)", "torch.randn(3, 8) * 2"), ("BATCH = 16\n", "")],
    ],
)
def test_spelling_does_not_matter(pairs):
    assert normal_form(changed(*pairs)) == normal_form(REFERENCE)


@pytest.mark.parametrize(
    "pair",
    [("relu", "gelu"), ("* self.scale", "+ self.scale"), (".sum(", ".mean("), ("nn.Linear", "nn.Bilinear"),
     ("        x = self.linear(x)  # first\n", "")],
)  # fmt: skip
def test_what_is_computed_does(pair):
    assert normal_form(changed(pair)) != normal_form(REFERENCE)
    alike = similarity(shingles(normal_form(changed(pair))), shingles(normal_form(REFERENCE)))
    assert 0.5 < alike < 1


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
