# SPDX-License-Identifier: Apache-2.0
"""A recording as a program: the same calls on tensors of the same form, and outputs of the same structure."""

import runpy
from collections import namedtuple

import pytest
import torch

from tests.env.inductor.test_kernel_texts import kernel
from verl_kernel.env.inductor.kernel_texts import NotWritten
from verl_kernel.env.inductor.program_text import write_program
from verl_kernel.env.inductor.recording import Configuration, KernelCall, OpCall, Recording

pytestmark = pytest.mark.slow  # torch's compiler is loaded

ATEN = torch.ops.aten
X, W = torch.ones(2, 3), torch.full((3, 4), 2.0)


def call(op, *args, **kwargs):
    return OpCall(op, args, kwargs, op(*args, **kwargs))


@pytest.fixture
def program(tmp_path):
    """Writes the program of a recording, and imports it."""

    def write(recording, inputs=((X,), {})):
        text = write_program("ModelNew", inputs, recording)
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
