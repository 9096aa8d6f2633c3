# SPDX-License-Identifier: Apache-2.0
"""The roofline of a task: what it counts, and that neither reference nor honest candidate is faster."""

from itertools import product

import pytest
import torch

from tests.env import programs
from tests.env.programs import HONEST, REFERENCE
from tests.tiers import thinned
from verl_kernel.env.gpus import GPUS
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.machine.roofline import Demand, flop_rates, roofline_ms
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.program import ReferenceProgram
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.dry_pass import dry_forward

KB = 1024
PROGRAMS = {
    "map": ("", "torch.relu(x) * 2", "64, 128", "", (32 * KB, 32 * KB, 0, 0)),
    "row sums": ("", "x.sum(1)", "64, 128", "", (32 * KB, 256, 0, 0)),
    "a part of the input": ("", "x[:8] + 1", "64, 128", "", (4 * KB, 4 * KB, 0, 0)),
    "a view": ("", "x.t()", "64, 128", "", (0, 0, 0, 0)),
    "repeated rows": ("", "torch.relu(x[:1]).expand(64, 128)", "64, 128", "", (512, 512, 0, 0)),
    "product": ("self.w = nn.Linear(32, 64)", "self.w(x)", "40, 32", "", (13568, 10240, 2 * 40 * 32 * 64, 0)),
    "half": ("", "x @ x", "64, 64", ", dtype=torch.float16", (8 * KB, 8 * KB, 0, 2 * 64**3)),
    "convolution": ("self.c = nn.Conv2d(4, 8, 3, bias=False)", "self.c(x)", "2, 4, 10, 10", "",
                    (4352, 4096, 2 * 2 * 64 * 8 * 4 * 9, 0)),
    "attention": ("", "F.scaled_dot_product_attention(x, x, x)", "2, 4, 32, 16", "", None),
    "recurrent": ("self.c = nn.LSTM(16, 24)", "self.c(x)[0]", "5, 3, 16", "", None),
    "norm and pool": ("self.b = nn.GroupNorm(2, 4)", "F.max_pool2d(self.b(x), 2)", "2, 4, 16, 16", "", None),
    "in place": ("", "x.mul_(2).add_(1)", "64, 128", "", (32 * KB, 0, 0, 0)),
}  # fmt: skip
OPTIONS = GymOptions(device="cpu", correctness_trials=3, compile_for="off")


def task_of(name):
    made, forward, shape, more, _ = PROGRAMS[name]
    return Task(programs.reference(forward, f"torch.randn({shape}{more})", members=made or "pass"), task_id=name)


def surveyed(device, task):
    program = ReferenceProgram(task, device)
    with torch.no_grad():
        program.build(program.init_inputs())
        return program.surveyed(program.draw(0))[1:]


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_reference_is_faster_than_its_roofline(device, name):
    """Which counts what a forward cannot do without."""
    events, demand = surveyed(device, task_of(name))
    *_, known = PROGRAMS[name]
    assert known is None or demand == Demand(*known)
    for gpu, float32 in product(GPUS, ["ieee", "tf32"]):
        machine = MachineModel.of(gpu, float32)
        assert (roofline_ms(demand, machine) or 0.0) <= time_ms(events, machine), machine


@pytest.mark.parametrize("name", thinned(PROGRAMS, 4))
def test_without_data_it_is_the_same(device, name):
    assert dry_forward(task_of(name), device).demand == surveyed(device, task_of(name))[1]


def test_the_longer_of_memory_and_products_counts():
    machine = MachineModel.of("h100")
    single, half = flop_rates(machine.gpu, tf32=False)
    assert roofline_ms(Demand(2 * 10**9, 10**9, 0, 0), machine) == pytest.approx(3e9 / 3350e9 * 1e3)
    assert roofline_ms(Demand(8, 8, 10**12, 0), machine) == pytest.approx(1e15 / single)
    assert roofline_ms(Demand(8, 8, 10**12, 10**12), machine) == pytest.approx(1e15 / single + 1e15 / half)
    assert roofline_ms(Demand(0, 0, 0, 0), machine) is None


def test_rounded_operands_may_only_be_quicker():
    for gpu in GPUS.values():
        assert flop_rates(gpu, tf32=True)[0] >= flop_rates(gpu, tf32=False)[0] >= gpu.tflops * 1e12
        assert flop_rates(gpu, tf32=True)[1] >= flop_rates(gpu, tf32=True)[0]


@pytest.mark.processes
def test_no_honest_kernel_beats_the_roofline(judge):
    result = judge.evaluate(Task(REFERENCE, task_id="fused"), HONEST)
    wrong = judge.evaluate(Task(REFERENCE, task_id="fused"), HONEST.replace("tl.store(", "tl.load(", 1))
    assert 0 < result.roofline_ms <= result.kernel_ms.median < result.reference_ms.median
    assert wrong.kernel_ms is None
    assert wrong.roofline_ms is None


def test_where_sizes_change_nobody_knows_what_a_forward_demands(device):
    fixed = task_of("map")
    sized = fixed.reference.replace("torch.randn(64", "torch.randn(torch.randint(9, (1,)) + 64")
    assert Reference(fixed, device).demand == Demand(*PROGRAMS["map"][-1])
    assert Reference(Task(sized), device).demand is None
