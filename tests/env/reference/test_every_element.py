# SPDX-License-Identifier: Apache-2.0
"""Each element of each input differs between trials that a judge may plan, or the task says that the input does not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.programs import reference
from verl_kernel.env.judge.trials.plan import TrialPlan
from verl_kernel.env.reference.exploration import FIXED_INPUT
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.variation import learn
from verl_kernel.env.task import Task

SIZE = "6, 8"
VARIED = {
    "normal": f"torch.randn({SIZE})",
    "uniform": f"torch.rand({SIZE})",
    "half precision": f"torch.randn({SIZE}, dtype=torch.bfloat16)",
    "double precision": f"torch.randn({SIZE}, dtype=torch.float64)",
    "eight bits": f"torch.randn({SIZE}).to(torch.float8_e4m3fn)",
    "many zeros": f"torch.randn({SIZE}).relu()",
    "one number": f"torch.full(({SIZE}), 0.5)",
    "zeros": f"torch.zeros({SIZE})",
    "ones": f"torch.ones({SIZE})",
    "a fixed grid": "torch.linspace(0, 1, 48)",
    "a scalar": "torch.rand(())",
    "a fixed scalar": "torch.tensor(3.0)",
    "mask": f"torch.rand({SIZE}) > 0.5",
    "mask as numbers": f"(torch.rand({SIZE}) > 0.5).float()",
    "a mask that is all true": f"torch.ones({SIZE}, dtype=torch.bool)",
    "a mask that is all false": f"torch.zeros({SIZE}, dtype=torch.bool)",
    "a causal mask": "torch.ones(8, 8).tril().bool()",
    "index": f"torch.randint(0, 9, ({SIZE}))",
    "an index of two values": f"torch.randint(3, 5, ({SIZE}))",
    "a random number of items": "torch.randint(1, 9, ())",
    "bytes": f"torch.randint(0, 255, ({SIZE}), dtype=torch.uint8)",
    "integers of both signs": f"torch.randint(-9, 9, ({SIZE}))",
    "sorted integers": "torch.randint(0, 99, (48,)).sort().values",
    "permutation": "torch.randperm(48)",
    "sorted": f"torch.randn({SIZE}).sort(-1).values",
    "symmetric": "(lambda x: x + x.mT)(torch.randn(8, 8))",
    "probabilities": f"torch.randn({SIZE}).softmax(-1)",
    "equal probabilities": f"torch.full(({SIZE}), 0.125)",
    "log probabilities": f"torch.randn({SIZE}).log_softmax(-1)",
    "unit rows": f"torch.nn.functional.normalize(torch.randn({SIZE}), dim=-1)",
    "one-hot": "torch.nn.functional.one_hot(torch.randint(8, (6,)), 8)",
    "one-hot numbers": "torch.nn.functional.one_hot(torch.randint(8, (6,)), 8).float()",
    "identity": "torch.eye(8)",
}
TRIANGLES = {
    "triangular": "torch.randn(8, 8).tril()",
    "a causal mask of numbers": "torch.full((8, 8), -1e9).triu(1)",
    "a causal mask of infinities": "torch.full((8, 8), float('-inf')).triu(1)",
}
"""Zeros at the same places in every draw stay zeros: a program may rely on them."""
FIXED = {
    "places in order": "torch.arange(48)",
    "starts of rows": "torch.arange(0, 48, 6)",
    "integer zeros": f"torch.zeros({SIZE}, dtype=torch.int64)",
    "integers of one value": f"torch.full(({SIZE}), 7)",
    "an integer": "torch.tensor(3)",
}
"""Another value could be out of range."""
ALL = {**VARIED, **TRIANGLES, **FIXED}
PLANS = 120
"""A zero of a one-hot matrix stays what it is in six plans of seven."""


def task(made, result="torch.stack([torch.nan_to_num(x.float().abs(), posinf=3.0).mean() for x in inputs])"):
    return reference(result, f"torch.randn(5), {made}", "*inputs")


def drawn(names, seed):
    torch.manual_seed(seed)
    return [eval(ALL[name]) for name in names]


def planned(names, secret):
    variation = learn([drawn(names, seed) for seed in (1, 2, 3)], lambda tensors: True)
    for number in range(PLANS):
        kinds = TrialPlan.draw(bytes((secret + number * 7 + place * 3) % 256 for place in range(32)), 5).kinds
        for place, kind in enumerate(kinds):
            seed = 1000 * secret + 10 * number + place
            tensors = drawn(names, seed)
            kind = "varied" if variation.always and kind == "drawn" else kind
            yield tensors if kind == "drawn" else variation.apply(tensors, seed, kind)


@pytest.mark.exhaustive
@settings(max_examples=20)
@given(st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=3), st.integers(0, 255))
def test_every_element_differs_between_trials(names, secret):
    """Whatever stands beside it; what is in none of the tables' exceptions has no element that stays."""
    for name, *tensors in zip(names, *planned(names, secret), strict=True):
        every = torch.stack([x.double() for x in tensors])
        kept = (every == every[:1]).all(0)
        if name in FIXED:
            assert kept.all()
        else:
            allowed = tensors[0] == 0 if name in TRIANGLES else torch.zeros_like(kept)
            assert not (kept & ~allowed).any(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_task_says_which_inputs_stay(name, device):
    flags = Reference(Task(task(ALL[name])), device).task_flags
    assert (f"{FIXED_INPUT}1" in flags) is (name in FIXED)
    assert f"{FIXED_INPUT}0" not in flags


def test_an_input_that_the_reference_bears_no_other_way_is_told(device):
    forward = "def forward(self, *inputs):\n"
    must = "        assert torch.equal(inputs[1], torch.full((8, 8), -torch.inf).triu(1))\n"
    text = task(TRIANGLES["a causal mask of infinities"]).replace(forward, forward + must)
    assert f"{FIXED_INPUT}1" in Reference(Task(text), device).task_flags


@pytest.mark.parametrize("start", ["zeros", "ones"])
def test_every_element_of_weights_that_start_alike_is_another(start, device):
    weight = f"self.w = nn.Parameter(torch.{start}(8))"
    text = reference("x.mean() + y * self.w", "torch.randn(5), torch.rand(6, 8)", "x, y", weight)
    weight = Reference(Task(text), device).state["w"]
    assert weight.unique().numel() == 8
    assert (weight != (start == "ones")).all()
