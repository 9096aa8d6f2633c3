# SPDX-License-Identifier: Apache-2.0
"""Rounding to TF32, the programs whose products it finds, and torch's switches for it, which are given back."""

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.env.programs import reference
from verl_kernel.env.comparison import tf32
from verl_kernel.env.comparison.tf32 import Rounding, has_products, rounded, rounded_products
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task

floats = st.floats(-(2.0**126), 2.0**126, width=32, allow_subnormal=False)
ODD = [0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-140, torch.finfo(torch.float32).max]


def neighbours(value: float) -> tuple[float, float]:
    """The TF32 numbers around a normal number, towards zero and away from it; both are it if it is one."""
    mantissa, exponent = math.frexp(abs(value))
    steps, step = mantissa * 2**11, math.ldexp(1.0, exponent - 11)
    return math.copysign(math.floor(steps) * step, value), math.copysign(math.ceil(steps) * step, value)


@given(st.lists(floats, min_size=1, max_size=20))
def test_rounding_gives_the_neighbours_that_ten_bits_have(values):
    tensor = torch.tensor(values, dtype=torch.float32)
    down, up = (torch.tensor(side, dtype=torch.float64) for side in zip(*map(neighbours, tensor.tolist()), strict=True))
    exact = tensor.double()
    assert torch.equal(rounded(tensor).double(), down)
    assert torch.equal(rounded(tensor, 0x1FFF).double(), up)
    nearest = torch.where((up - exact).abs() <= (exact - down).abs(), up, down)
    assert torch.equal(rounded(tensor, 0x1000).double(), nearest)


def test_what_is_no_normal_number_keeps_its_kind():
    tensor = torch.tensor(ODD)
    for added in (0, 0x1000, 0x1FFF):
        assert torch.equal(rounded(tensor, added)[:4], tensor[:4])
        assert rounded(tensor, added)[4].isnan()
        assert 0 <= rounded(tensor, added)[5] <= 2.0**-135
    assert rounded(torch.tensor(ODD[-1])).isfinite()


def test_random_directions_are_those_of_their_seed_and_even():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))

    def run(seed):
        with Rounding(seed) as rounding:
            out = torch.mm(torch.ones(1, 1000), torch.diag(x))
        assert rounding.was_used
        return out[0]

    first = run(1)
    assert torch.equal(first, run(1))
    assert not torch.equal(first, run(2))
    ups = (first == rounded(x, 0x1FFF)).sum()
    assert ((first == rounded(x)) | (first == rounded(x, 0x1FFF))).all()
    assert 400 < ups < 600


def randn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))


A, B, BATCH, OTHER = randn(5, 7), randn(7, 6), randn(3, 5, 7), randn(3, 7, 4)
SIGNAL, IMAGE, VOLUME = randn(2, 4, 20), randn(2, 4, 9, 9), randn(2, 4, 5, 5, 5)
FACTORS = {
    "mm": (torch.mm, A, B),
    "matmul": (torch.matmul, BATCH, B),
    "bmm": (torch.bmm, BATCH, OTHER),
    "mv": (torch.mv, A, randn(7)),
    "linear": (F.linear, A, randn(6, 7)),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->ik", a, b), BATCH, OTHER),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), BATCH, B),
    "transposed": (lambda a, b: a.T @ b.T, randn(7, 5), randn(6, 7)),
    "out": (lambda a, b: torch.mm(a, b, out=torch.empty(5, 6)), A, B),
    "conv1d": (F.conv1d, SIGNAL, randn(6, 4, 3)),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2), IMAGE, randn(6, 2, 3, 3)),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=4), IMAGE, randn(4, 1, 3, 3)),
    "conv3d": (F.conv3d, VOLUME, randn(6, 4, 2, 2, 2)),
    "conv_transpose2d": (F.conv_transpose2d, IMAGE, randn(4, 6, 3, 3)),
}
SUMMED = {
    "addmm": (torch.addmm, randn(6), A, B),
    "addmm_": (lambda c, a, b: c.clone().addmm_(a, b, beta=0.5), randn(5, 6), A, B),
    "baddbmm": (torch.baddbmm, randn(3, 5, 4), BATCH, OTHER),
    "addbmm": (torch.addbmm, randn(5, 4), BATCH, OTHER),
    "addmv": (torch.addmv, randn(5), A, randn(7)),
    "linear with bias": (lambda c, a, b: F.linear(a, b.T, c), randn(6), A, B),
    "conv2d with bias": (lambda c, x, w: F.conv2d(x, w, c), randn(6), IMAGE, randn(6, 4, 3, 3)),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", [*FACTORS, *SUMMED])
def test_factors_of_products_are_rounded_and_summands_are_not(name, inference):
    function, *operands = FACTORS.get(name) or SUMMED[name]
    kept = operands[:-2]
    exact = function(*kept, *map(rounded, operands[-2:]))
    with torch.inference_mode() if inference else torch.no_grad(), Rounding(None):
        found = function(*operands)
    assert torch.equal(found, exact)
    assert not torch.equal(found, function(*operands))


UNTOUCHED = {
    "sums": lambda: A * 3 + A.sum(-1, keepdim=True),
    "doubles": lambda: A.double() @ B.double(),
    "halves": lambda: A.half() @ B.half(),
    "complex numbers": lambda: A.to(torch.complex64) @ B.to(torch.complex64),
    "moves": lambda: torch.cat([A, A.flip(0)]).T.contiguous(),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_nothing_else_is(name):
    exact = UNTOUCHED[name]()
    with torch.no_grad(), Rounding(None) as rounding:
        assert torch.equal(UNTOUCHED[name](), exact)
    assert not rounding.was_used


class Attention(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


QUERY = randn(2, 4, 16, 8)
LAYERS = {
    "attention": (Attention(), (QUERY, QUERY + 1, QUERY - 1)),
    "multi-head attention": (nn.MultiheadAttention(16, 4, batch_first=True).eval(), (randn(2, 8, 16),) * 3),
    "transformer layer": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), (randn(2, 8, 16),)),
    "lstm": (nn.LSTM(8, 12, num_layers=2, bidirectional=True), (randn(5, 2, 8),)),
    "gru": (nn.GRU(8, 12), (randn(5, 2, 8),)),
    "rnn": (nn.RNN(8, 12), (randn(5, 2, 8),)),
    "gru cell": (nn.GRUCell(8, 12), (randn(5, 8),)),
}


def tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    return [leaf for part in output if part is not None for leaf in tensors(part)]


@pytest.mark.parametrize("name", LAYERS)
def test_products_inside_of_layers_are_found(device, name):
    """Each output moves by about what TF32 has, and what was switched off to take a layer apart is on again."""
    layer, inputs = LAYERS[name]
    torch.manual_seed(0)
    layer.apply(lambda part: part.reset_parameters() if hasattr(part, "reset_parameters") else None)
    with torch.no_grad():
        with device.record() as events:
            exact = tensors(layer(*inputs))
        assert has_products(events)
        state = switches()
        with rounded_products(events, None) as rounding:
            moved = tensors(layer(*inputs))
        assert rounding.was_used
        assert switches() == state
    assert len(exact) == len(moved)
    for one, other in zip(exact, moved, strict=True):
        share = float((one - other).norm() / one.norm())
        assert 2e-5 < share < 4e-3, share


def switches():
    flags = torch.backends
    return (
        flags.cudnn.enabled, torch._C._get_mkldnn_enabled(), flags.mha.get_fastpath_enabled(),
        flags.cuda.flash_sdp_enabled(), flags.cuda.mem_efficient_sdp_enabled(), flags.cuda.math_sdp_enabled(),
    )  # fmt: skip


def test_hidden_states_are_rounded_at_every_step():
    """Rounding the weights alone moves less."""
    layer, (x,) = LAYERS["rnn"]
    weights = [rounded(weight.detach()) for weight in (layer.weight_ih_l0, layer.weight_hh_l0)]
    state = torch.zeros(2, 12)
    with torch.no_grad():
        for step in x:
            product = rounded(step) @ weights[0].T + layer.bias_ih_l0 + layer.bias_hh_l0
            state = torch.tanh(product + rounded(state) @ weights[1].T)
        with rounded_products([SimpleNamespace(kind="op", name="aten::rnn_tanh")], None):
            assert torch.allclose(layer(x)[1][0], state, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "kind", "expected"), [
    ("aten::mm", "op", True), ("aten::addmm_.out", "op", True), ("aten::convolution", "op", True),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "op", True), ("aten::_cudnn_rnn", "op", True),
    ("aten::lstm", "op", True), ("aten::mul.Tensor", "op", False), ("aten::mm", "launch", False),
])  # fmt: skip
def test_a_trace_tells_whether_there_are_products(name, kind, expected):
    events = [SimpleNamespace(kind="op", name="aten::relu"), SimpleNamespace(kind=kind, name=name)]
    assert has_products(events) is expected


OLD = {"matmul": (torch.backends.cuda.matmul, "allow_tf32"), "convolution": (torch.backends.cudnn, "allow_tf32")}


def allowed() -> tuple[bool, ...]:
    """What any program may read; torch raises here where old and new switches contradict each other."""
    return tuple(getattr(place, name) for place, name in OLD.values())


def chosen() -> tuple:
    return (*allowed(), torch.get_float32_matmul_precision(), *tf32._read())


@pytest.fixture(autouse=True)
def kept():
    before = tf32._read()
    yield
    tf32._write(before)


@pytest.mark.parametrize("mode", ["ieee", "tf32"])
@pytest.mark.parametrize("earlier", ["highest", "high", "medium"])
def test_the_mode_holds_inside_and_what_was_comes_back(mode, earlier):
    torch.set_float32_matmul_precision(earlier)
    torch.backends.cudnn.allow_tf32 = earlier == "high"
    before = chosen()
    with tf32.precision(mode):
        assert allowed() == (mode == "tf32",) * 2
        assert torch.get_float32_matmul_precision() == ("high" if mode == "tf32" else "highest")
    assert chosen() == before


def test_it_comes_back_after_a_failure():
    before = chosen()
    with pytest.raises(ZeroDivisionError), tf32.precision("tf32"):
        raise ZeroDivisionError
    assert chosen() == before


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch has no such switches before 2.9")
def test_newer_switches_are_set_one_by_one():
    torch.backends.cudnn.conv.fp32_precision, torch.backends.cudnn.rnn.fp32_precision = "ieee", "tf32"
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    cuda, cudnn, onednn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    for mode in ("ieee", "tf32"):
        with tf32.precision(mode):
            assert {cuda.matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision} == {mode}
            assert {getattr(onednn, op).fp32_precision for op in ("matmul", "conv", "rnn")} == {"ieee"}
            assert allowed() == (mode == "tf32",) * 2
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("ieee", "tf32")
    assert onednn.matmul.fp32_precision == "bf16"


@pytest.mark.slow
def test_it_says_nothing():
    """Torch warns once a process of the old switches, which would end up in what a candidate prints."""
    text = "from verl_kernel.env.comparison import tf32\ntf32.use('tf32')\nwith tf32.precision('ieee'): pass"
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


LIBRARY = """
        if {switch}:  # as cuBLAS and cuDNN do it
            x = (x.view(torch.int32) & -8192).view(torch.float32)
        return x
"""
CHOOSES = "torch.set_float32_matmul_precision('high'); torch.backends.cudnn.allow_tf32 = True"


def prepared(device, forward: str, start: str = "pass") -> Reference:
    """A reference with statements in its `forward` and in its `__init__`."""
    source = reference("x", "torch.randn(16, 64)", members=start)
    return Reference(Task(source.replace("        return x\n", f"{forward}\n")), device)


@pytest.mark.parametrize("switch", ["torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"])
@pytest.mark.parametrize("start", ["pass", CHOOSES])
def test_expected_outputs_are_exact_in_any_process(device, switch, start):
    """A program that rounds where its library would; convolutions of cuDNN do unless they are told not to."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    task = prepared(device, LIBRARY.format(switch=switch), start)
    trial = task.trial(b"s", 0, "drawn")
    assert torch.equal(trial.expected.tensors[0], trial.inputs.tensors[0])
    assert not torch.equal(task.model(trial.inputs.tensors[0]), trial.inputs.tensors[0])  # it can tell


@pytest.mark.parametrize("start", ["pass", CHOOSES])
def test_what_a_program_chooses_reaches_no_other(device, start):
    tf32.use("ieee")
    before = chosen()
    task = prepared(device, f"        {CHOOSES}\n        return x + 0", start)
    assert chosen() == before
    task.trial(b"s", 0, "drawn")
    assert chosen() == before
