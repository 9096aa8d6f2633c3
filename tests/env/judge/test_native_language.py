# SPDX-License-Identifier: Apache-2.0
"""Ways to write a kernel that Triton compiles are judged, with real processes."""

from collections.abc import Iterator

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

TASK = Task(
    """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.stack((2 * x, 2 * y))

def get_inputs():
    return [torch.randn(64), torch.randn(64)]

def get_init_inputs():
    return []
""",
    task_id="doubled",
)
HEAD = """
import logging
import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

logger = logging.getLogger(__name__)
"""
TABLE = """
@triton.jit
def doubling(table, out, n: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, n)
    x = tl.load(table + row).to(tl.pointer_type(tl.float32))
    tl.store(out + row * n + place, 2 * tl.load(x + place{beyond}))

class ModelNew(nn.Module):
    def forward(self, x, y):
        out, starts = torch.empty(2, 64), []
        for tensor in (x, y{other}):
            starts.append(tensor.data_ptr())
        doubling[(2,)](torch.tensor(starts), out, 64)
        return out
"""
RIGHT_TABLE = TABLE.format(beyond="", other="")
STORED = """
@triton.jit
def noting(x, y, table):
    tl.store(table, x.to(tl.int64))
    tl.store(table + 1, y.to(tl.int64))
""" + RIGHT_TABLE.replace("torch.tensor(starts)", "torch.empty(2, dtype=torch.int64)").replace(
    "        doubling[",
    "        table = torch.zeros(2, dtype=torch.int64)\n        noting[(1,)](x, y, table)\n        doubling[",
).replace("(torch.empty(2, dtype=torch.int64), out", "(table, out").replace(
    "        for tensor in (x, y):\n            starts.append(tensor.data_ptr())\n", ""
)
PLAIN = """
@tl.constexpr
def widest(dtype: tl.dtype) -> tl.dtype:
    return tl.float32 if dtype.is_fp16() or dtype.primitive_bitwidth == 32 else dtype

exp = tl.exp

@triton.jit
def doubling(x, out, n: tl.constexpr):
    kind: tl.constexpr = widest(x.type.element_ty)
    place = tl.arange(0, n)
    tl.store(out + place, (2 * tl.load(x + place) * exp(0.0)).to(kind))

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(2, 64)
        logger.debug("doubles %s", x.shape)
        with torch.accelerator.device_index(x.device.index):
            for number, tensor in enumerate((x, y)):
                doubling[(1,)](tensor, out[number], 64)
        return out
"""
DESCRIPTOR = """
def set_block(nargs):
    nargs["source"].block_shape = [nargs["BLOCK"]]

@triton.autotune([triton.Config({"BLOCK": b}, pre_hook=set_block) for b in (16, 32)], key=["n"])
@triton.jit
def doubling(source, out, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    tl.store(out + first + tl.arange(0, BLOCK), 2 * source.load([first]))

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(2, 64)
        for number, tensor in enumerate((x, y)):
            source = TensorDescriptor(tensor, shape=[64], strides=[1], block_shape=[1])
            doubling[lambda meta: (64 // meta["BLOCK"],)](source, out[number], 64)
        return out
"""
MEMO = RIGHT_TABLE.replace(
    "        doubling[",
    """        key = torch.tensor(starts)[0].item()
        if key in self.seen:
            return self.seen[key]
        self.seen[key] = out
        doubling[""",
).replace(
    "    def forward",
    """    def __init__(self):
        super().__init__()
        self.seen = {}

    def forward""",
)

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(GymOptions(device="cpu", correctness_trials=3), seed=5) as judge:
        yield judge


@pytest.mark.parametrize(
    "source", [RIGHT_TABLE, STORED, PLAIN, DESCRIPTOR], ids=["table", "stored_table", "plain_functions", "descriptor"]
)
def test_what_triton_compiles_is_judged_with_a_time(source, judge):
    result = judge.evaluate(TASK, HEAD + source)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup > 0, result.error
    assert result.number_coverage == (0.5 if "noting" in source else 1.0)  # to note an address is no compute


WRONG = {
    "beyond_a_tensor": (TABLE.format(beyond=" + 64", other=""), EvalStatus.CRASH),
    "no_address": (RIGHT_TABLE.replace("torch.tensor(starts)", "torch.tensor([1 << 44, 1 << 45])"), EvalStatus.CRASH),
    "memory_that_is_gone": (
        RIGHT_TABLE.replace("(tensor.data_ptr())", "((tensor + 0).data_ptr())"),
        EvalStatus.CRASH,
    ),
    "results_by_address": (MEMO, EvalStatus.INCORRECT),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_table_leads_to_living_tensors_only(name, judge):
    source, status = WRONG[name]
    result = judge.evaluate(TASK, HEAD + source)
    assert result.status is status or "replayed_output" in result.hack_flags, (result.status, result.error)
