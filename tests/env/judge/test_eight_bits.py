# SPDX-License-Identifier: Apache-2.0
"""Tasks whose inputs or outputs are 8-bit floats."""

import pytest

from tests.env.programs import elementwise, reference
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Task

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(device="cpu")
E4M3, E5M2 = "torch.float8_e4m3fn", "torch.float8_e5m2"
HONEST = {
    "in and out": (f".to({E4M3})", f"x.float().relu().to({E4M3})", "tl.maximum(v, 0.0)", E4M3),
    "out": ("", f"(x * 3.7).to({E4M3})", "v * 3.7", E4M3),
    "out of bfloat16": (".bfloat16()", f"(nn.functional.silu(x) * 2.5).to({E4M3})", "v / (1 + tl.exp(-v)) * 2.5", E4M3),
    "wide out": ("", f"(x.sigmoid() * 9).to({E5M2})", "9 * tl.sigmoid(v)", E5M2),
    "in": (f".to({E5M2})", "x.float().exp()", "tl.exp(v)", "torch.float32"),
}
WRONG = {
    "another factor": ("", f"(x * 3.7).to({E4M3})", "v * 3.6", E4M3),
    "another function": (".bfloat16()", f"nn.functional.silu(x).to({E4M3})", "v * tl.clamp(v / 6 + 0.5, 0, 1)", E4M3),
    "numbers that are drawn rarely": (f".to({E5M2})", "x.float().clamp(max=6).exp()", "tl.exp(v)", "torch.float32"),
    "no sign": (f".to({E4M3})", f"(x.float() * 2).to({E4M3})", "tl.abs(v) * 2", E4M3),
    "cut": ("", f"x.to({E4M3})", "(v.to(tl.uint32, bitcast=True) & 0xfff00000).to(tl.float32, bitcast=True)", E4M3),
}  # fmt: skip


def judged(judge, drawn, result, kernel, dtype):
    task = Task(reference(result, f"torch.randn(128, 256){drawn}"))
    value = kernel.replace("v", "v.to(tl.float32)")
    source = elementwise(f"({value}).to(out.dtype.element_ty)", out=f"torch.empty(x.shape, dtype={dtype})")
    return judge.evaluate(task, source)


@pytest.mark.parametrize("name", thinned(HONEST, 5))
def test_an_honest_kernel_is_right(judge, name):
    result = judged(judge, *HONEST[name])
    assert (result.status, result.decoy_kernel) == (EvalStatus.OK, False), result.error


@pytest.mark.parametrize("name", thinned(WRONG, 5))
def test_a_wrong_kernel_is_found(judge, name):
    assert judged(judge, *WRONG[name]).status is EvalStatus.INCORRECT
