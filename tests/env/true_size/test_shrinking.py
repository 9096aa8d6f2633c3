# SPDX-License-Identifier: Apache-2.0
"""Which numbers of a task are its sizes, how they are reduced, and which copies are accepted."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.programs import reference
from tests.env.true_size.programs import PRODUCT, ROWS
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.bounds import ALLOWED, POSSIBLE, Bounds, keeps_to
from verl_kernel.env.true_size.dry_pass import dry_forward
from verl_kernel.env.true_size.shrinking import (
    FLOOR,
    UNCHANGED,
    WIDTHS,
    counts_of,
    divided,
    halved,
    resized,
    shrink,
    sizes_of,
    varied,
)
from verl_kernel.errors import TaskError

TASK = """
import torch
from torch import nn

LIMIT: int = 7
shape = (3, 2**10 + 24)

class Model(nn.Module):
    def __init__(self, width, groups=64):
        super().__init__()

    def forward(self, x):
        return x.sum(dim=1) / 512

width = 64 * 1024

def get_inputs():
    batch = 48
    return [torch.randn(batch, width, -1 + 6), {BODY}]

def get_init_inputs():
    return [width, "65536", 1.5, True]
"""

_HEADS, _SIZES = "torch.randn(batch, heads, tokens, width)", "batch, heads, tokens, width = 2, 16, 2048, 64"
_CALL = "F.scaled_dot_product_attention(q, k, v)"
ATTENTION = reference(_CALL, f"*({_HEADS} for _ in range(3))", "q, k, v", before=_SIZES)


def test_sizes_are_numbers_of_the_module_and_its_functions():
    assert sizes_of(TASK.replace("{BODY}", "torch.randint(0, 65536, (48,))")) == (6, 7, 48, 1048, 65536)


def test_a_resized_task_differs_in_its_sizes_only():
    text = resized(TASK.replace("{BODY}", "None"), {65536: 256, 48: 12, 1048: 32})
    assert sizes_of(text) == (6, 7, 12, 32, 256)
    for said in ("groups=64", "/ 512", "'65536'"):
        assert said in text


SIZES = st.lists(st.integers(1, 1 << 20), min_size=1, max_size=8, unique=True).map(sorted)


@given(SIZES, st.integers(1, 12))
def test_division_keeps_small_sizes_parity_order_and_difference(sizes, power):
    new = divided(sizes, 2**power)
    assert set(new) == {size for size in sizes if size > UNCHANGED}
    assert all((value >= FLOOR and value % 2 == size % 2) or size // 2**power > FLOOR for size, value in new.items())
    assert all(value % 2 for size, value in new.items() if size % 2)
    assert list(new.values()) == sorted(set(new.values()))
    for size, value in divided(sizes, 2**power, unchanged_up_to=WIDTHS).items():
        assert value % min(size & -size, WIDTHS) == 0, "powers of two in widths that are kept"


def test_widths_stay_and_what_is_reduced_is_none_of_them():
    assert divided([8, 64, 2048, 4096], 32, unchanged_up_to=WIDTHS) == {2048: 128, 4096: 256}
    assert divided([8, 64, 2048, 4096], 32) == {64: 8, 2048: 64, 4096: 128}


def test_a_heads_width_stays_where_the_tokens_can_go(device):
    task = Task(ATTENTION, "attention")
    for copy in shrink(task, device, b"").copies:
        assert copy.sizes.get(64, 64) == 64
        assert copy.sizes[2048] < 512


def test_many_heads_become_few_and_their_width_stays(device):
    """Else a kernel's `tl.arange(0, width)` would be none: a width must stay a power of two, and 16 or more."""
    text = ATTENTION.replace("2, 16, 2048, 64", "4, 32, 1024, 64")
    for copy in shrink(Task(text, "heads"), device, b"").copies:
        assert copy.sizes.get(64, 64) == 64
        assert copy.sizes[32] < 16


def test_lengths_of_no_row_and_of_no_weight_count_rows(device):
    members = "self.layer = torch.nn.Linear(96, 24)"
    task = Task(reference("self.layer(x)", "torch.randn(6, 40, 96), torch.randn(24, 96)", "x, y", members))
    assert counts_of(dry_forward(task, device)) == {6, 40}


def test_counts_become_smaller_where_widths_stay():
    assert divided([8, 32, 64, 1024], 32, unchanged_up_to=WIDTHS, counts=(32, 1024)) == {32: 2, 1024: 32}
    assert divided([8, 32, 64, 1024], 32, unchanged_up_to=WIDTHS) == {1024: 128}


@given(st.lists(st.integers(8, 20).map(lambda n: 2**n), min_size=1, unique=True).map(sorted), st.integers(1, 12))
def test_where_widths_are_kept_powers_of_two_stay_such(sizes, power):
    new = divided(sizes, 2**power, unchanged_up_to=WIDTHS)
    assert all(value & (value - 1) == 0 for value in new.values())


def test_halving_ends_where_the_task_fits():
    def fits(sizes):
        return None if sizes[96] != 96 else sizes[1024] * sizes[96] <= 96 * 100

    assert halved((3, 96, 1024), fits) == {96: 96, 1024: 64}
    assert halved((96, 1024), lambda sizes: None) is None


@given(st.integers(0, 99))
def test_varied_sizes_are_larger_and_keep_divisors_of_true_ones(seed):
    for sizes in varied({4096: 64, 100: 24, 8: 8}, Random(seed)):
        assert sizes[8] == 8
        assert 64 <= sizes[4096] <= 80
        assert 24 <= sizes[100] <= 32
    for sizes in varied({4096: 128, 3072: 384, 1000: 136, 999: 129}, Random(seed)):
        assert sizes[4096] in (128, 256)
        assert sizes[3072] in (384, 512)
        assert sizes[1000] % 8 == 0


@pytest.mark.parametrize("source", [ROWS, PRODUCT])
def test_copies_run_the_same_ops_and_keep_to_the_bounds(device, source):
    task = Task(source)
    assert not keeps_to(task, device, ALLOWED)
    found = shrink(task, device, b"secret")
    assert len({copy.task.fingerprint for copy in found.copies} | {task.fingerprint}) == 3
    for copy in found.copies:
        assert copy.dry.ops == found.true.ops
        assert copy.keeps_to(ALLOWED)
        assert keeps_to(copy.task, device, ALLOWED)
    assert found.copies[0].dry.traffic < found.copies[1].dry.traffic < found.true.traffic


def test_sizes_depend_on_the_secret_alone(device):
    sources = [
        [copy.task.reference for copy in shrink(Task(PRODUCT), device, secret).copies] for secret in (b"a", b"a", b"b")
    ]
    assert sources[0] == sources[1] != sources[2]


def test_sizes_tied_to_each_other_are_reduced_together(device):
    tied = ROWS.replace("self.weight =", "assert width % 64 == 0\n        self.weight =")
    assert all(copy.sizes[16384] % 64 == 0 for copy in shrink(Task(tied), device, b"").copies)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("assert x.shape == (32768, 16384)", "no copy with smaller sizes"),
        ("return x[x > 0]", "depends on values"),
        ("return x * x.max().item()", "on the host"),
        ("return torch.zeros(3) + x.numpy()[0, 0]", "reads a tensor on the host"),
    ],
)
def test_a_task_without_copies_is_refused_in_one_sentence(device, line, text):
    with pytest.raises(TaskError, match=text) as caught:
        shrink(Task(ROWS.replace("return torch.relu", f"{line}\n        return torch.relu"), "odd"), device, b"")
    assert "reference odd" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bounds_hold_for_what_is_run(device):
    medium = Task(ROWS.replace("rows, width = 32768, 16 * 1024", "rows, width = 4096, 4096"))
    assert keeps_to(medium, device, POSSIBLE)
    assert not keeps_to(medium, device, ALLOWED)
    small = Task(ROWS.replace("rows, width = 32768, 16 * 1024", "rows, width = 64, 64"))
    assert keeps_to(small, device, ALLOWED)
    broken = Task(small.reference.replace("x * self", "y * self"))
    assert keeps_to(broken, device, ALLOWED)  # whoever prepares it says what is wrong


@pytest.mark.parametrize(("kind", "fits"), [("float32", True), ("bfloat16", True), ("float16", False)])
def test_products_of_float16_are_slow_on_a_processor(device, kind, fits):
    task = Task(reference("x @ x", f"torch.randn(128, 128, dtype=torch.{kind})"))
    bounds = Bounds(traffic=1e9, flops=1e7, tensor_bytes=1e9)
    assert keeps_to(task, device, bounds) is (dry_forward(task, device).work <= bounds.flops) is fits
