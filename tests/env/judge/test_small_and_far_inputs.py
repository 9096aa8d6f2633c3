# SPDX-License-Identifier: Apache-2.0
"""Rows so small that a norm's epsilon decides them, and inputs so far apart that no digit of a score is left."""

import pytest

from tests.env.programs import program_of, reference
from verl_kernel.env import EvalStatus, GymOptions, Task

pytestmark = [pytest.mark.processes, pytest.mark.slow]
OPTIONS = GymOptions(device="cpu", correctness_trials=3, compile_for="sm_90", memory_checks="refuse")

NORM = Task(reference("torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)", "torch.randn(64, 100)"))
NORM_KERNEL = """
@triton.jit
def norm(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside, row = column < columns, tl.program_id(0) * columns
    x = tl.load(x_ptr + row + column, mask=inside, other=0.0)
    centred = tl.where(inside, x - tl.sum(x, 0) / columns, 0.0)
    variance = tl.sum(centred * centred, 0) / columns
    tl.store(out_ptr + row + column, centred SCALED, mask=inside)

def forward(self, x):
    out = torch.empty_like(x)
    norm[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
    return out
"""

DECODE = Task(
    reference(
        "torch.softmax(q @ k.mT, -1) @ v", "torch.randn(2, 4, 32), torch.randn(2, 64, 32), torch.randn(2, 64, 32)",
        "q, k, v",
    )
)  # fmt: skip
DECODE_KERNEL = """
@triton.jit
def decode(q_ptr, k_ptr, v_ptr, out_ptr, keys, GROUP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    batch, head, inner = tl.program_id(0), tl.arange(0, GROUP), tl.arange(0, WIDTH)
    place = (batch * GROUP + head[:, None]) * WIDTH + inner[None, :]
    q = tl.load(q_ptr + place)
    largest, norm = tl.full((GROUP,), -1e30, tl.float32), tl.zeros((GROUP,), tl.float32)
    total = tl.zeros((GROUP, WIDTH), tl.float32)
    for start in range(0, keys, BLOCK):
        row = (batch * keys + start + tl.arange(0, BLOCK)[:, None]) * WIDTH + inner[None, :]
        scores = tl.sum(q[:, None, :] * tl.load(k_ptr + row)[None, :, :], 2)
        above = tl.maximum(largest, tl.max(scores, 1))
        weights, shrunk = tl.exp(scores - above[:, None]), tl.exp(largest - above)
        total = total * shrunk[:, None] + tl.sum(weights[:, :, None] * tl.load(v_ptr + row)[None, :, :], 1)
        norm, largest = norm * shrunk + tl.sum(weights, 1), above
    tl.store(out_ptr + place, total / norm[:, None])

def forward(self, q, k, v):
    out = torch.empty_like(q)
    decode[(q.shape[0],)](q, k, v, out, k.shape[1], q.shape[1], q.shape[2], 16)
    return out
"""


@pytest.mark.parametrize(("scaled", "status"), [
    ("* tl.rsqrt(variance + 1e-5)", EvalStatus.OK), ("* tl.rsqrt(variance + 1e-6)", EvalStatus.INCORRECT),
    ("/ (tl.sqrt(variance) + 1e-5)", EvalStatus.INCORRECT),
])  # fmt: skip
def test_a_norms_epsilon_is_the_references(judge, scaled, status):
    assert judge.evaluate(NORM, program_of(NORM_KERNEL.replace("SCALED", scaled))).status is status


def test_scores_that_each_lane_sums_in_its_own_order_are_right(judge):
    """Copies of a score differ in the last bit: far from zero, exp of the difference is another number."""
    result = judge.evaluate(DECODE, program_of(DECODE_KERNEL))
    assert result.status is EvalStatus.OK, result.error
