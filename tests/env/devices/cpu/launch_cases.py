# SPDX-License-Identifier: Apache-2.0
"""What a program's launches are described and recorded as; run in a process of its own, prints JSON."""

import functools
import json
from collections import namedtuple

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.cpu import execution_link, launches
from verl_kernel.env.devices.cpu.descriptions import Descriptions
from verl_kernel.env.devices.cpu.kernel_source import NotTriton
from verl_kernel.env.devices.cpu.launch_state import STATE
from verl_kernel.env.ipc.execution_messages import Launched, Work

Pair = namedtuple("Pair", "left right")
SCALE = tl.constexpr(3)
KIND = tl.float16
exp = tl.exp
OTHER = object()


@triton.constexpr_function
def rounded(n):
    return n // 2 * 2


@tl.constexpr
def widest(kind):
    return tl.float32 if kind.is_fp16() else kind


@triton.jit
def plain(x):
    tl.store(x, widest(tl.float16)(1))


@triton.jit
def helper(x, n):
    return exp(x) * SCALE + (helper(x, n - 1) if n > 0 else 0)


@triton.jit(do_not_specialize=["n"], noinline=False)
def kernel(x, n, pair, BLOCK: tl.constexpr = 16):
    offsets = tl.arange(0, rounded(BLOCK))
    y = libdevice.tanh(helper(tl.load(x + offsets), 1)).to(KIND)
    tl.store(x + offsets, tl.sum(y, 0) + len(str(BLOCK)))


@triton.jit
def careless(x):
    tl.store(x, OTHER)


def _described(*args, made=kernel, **options):
    return Descriptions().describe(made, args, options)


@triton.jit
@functools.wraps(careless.fn)
def wrapped(x):
    tl.store(x, 1)


def _refused(made):
    try:
        _described(X, made=made)
    except NotTriton as exc:
        return str(exc)
    return None


def _unit(*args, **options):
    return _described(*args, **options).unit.to_json()


def _digest(*args, **options):
    return _described(*args, **options).digest


def _redefined():
    """Whether digests are the first one, while a global that a kernel uses changes and changes back."""
    known, digests = Descriptions(), []
    for scale in (3, 4, 3):
        globals()["SCALE"] = tl.constexpr(scale)
        digests.append(known.describe(kernel, (X, 2, None), {}).digest)
    return [digest == digests[0] for digest in digests]


def _closure(value):
    OTHER = value

    @triton.jit
    def inner(x):
        tl.store(x, OTHER)

    return inner


class _Link:
    """Notes what it is asked, and answers the same to all."""

    def __init__(self, failure=None):
        self.asked, self.failure = [], failure

    def run(self, unit, *, grid, arguments, views, is_tried, kept_kinds, tables, fresh_areas):
        self.asked.append([grid, sorted(arguments), len(views), is_tried, kept_kinds])
        work = Work(
            variant="", bytes=8, flops=2, half_flops=0, stored=4, computed=4, steps=[], reads=[(0, 4, 0, 4)],
            writes=[(0, 4, 0, 4)],
        )  # fmt: skip
        return Launched(failure=self.failure, work=None if self.failure else work, base=0, changed_again=[]), [*views]


def _recorded(run, failure=None):
    """Events of what a function launches, what it raised, and what was asked of the executing process."""
    STATE.link, raised = _Link(failure), None
    with torch.no_grad(), DEVICE.record() as events:
        try:
            run()
        except Exception as exc:  # noqa: BLE001  a case may expect any
            raised = f"{type(exc).__name__}: {exc}"
    told = [[event.name, event.grid, event.bytes, event.failed] for event in events]
    return {"events": told, "raised": raised, "asked": STATE.link.asked}


def _launch(grid=(2,), **options):
    return lambda: kernel[grid](X, 5, None, **options)


def _ablated(kept, only=None):
    def run():
        with DEVICE.suppress_launches(kept, only):
            _launch()()
            _launch()()

    return run


def _tuned(cache_results):
    configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})]

    @triton.autotune(configs, key=["n"], cache_results=cache_results)
    @triton.jit
    def tuned(x, n, BLOCK: tl.constexpr):
        tl.store(x, n)

    return lambda: tuned[lambda given: (given["BLOCK"],)](X, 7)


def _reached():
    """What a launch may touch that is given a table, and what the executing process is told of it."""
    table = torch.tensor([0, Y.data_ptr() + 4, 7, X.data_ptr(), 1 << 44])
    kept = STATE.begin_launch([table])
    ranges, places = sorted(set(STATE.ranges)), {}
    for number, place in enumerate(ranges):
        places[place] = number << 20
    told = execution_link.pointers(STATE.tables, places)
    word, other = (places[_range(table)] + 8 * number for number in (1, 3))
    expected = [(word, places[_range(Y)] + 4), (other, places[_range(X)])]
    before = table.clone()
    table[1], table[3], table[4] = (9 << 30) + expected[0][1], (9 << 30) + expected[1][1], 9 << 30
    execution_link.restore(STATE.tables, places, 9 << 30)
    first = next(place for place, offset in places.items() if offset == 0)
    return [kept, told == expected, (table[:4] == before[:4]).all().item(), table[4].item() == first[0]]


def _range(tensor):
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


class Cheat(triton.runtime.JITFunction):
    """No kernel of triton.jit's."""


DEVICE = resolve_device("cpu")
DEVICE.setup()
X, Y = torch.ones(64), torch.zeros(32)
launches.DESCRIPTIONS.is_on = True
TUNED = [_recorded(_tuned(cache_results)) for cache_results in (False, True, True)]
CASES = {
    "unit": _unit(X, 5, Pair(1, 2.0), num_warps=8),
    "plain": _unit(X, made=plain)["functions"],
    "tables": _reached(),
    "no_table": (STATE.begin_launch([torch.arange(64), X]), len(STATE.ranges))[1],
    "careless": [*_unit(X, made=careless)["functions"][0]["uses"]["OTHER"]],
    "wrapped": _refused(wrapped),
    "closures": [_unit(X, made=_closure(value))["functions"][0]["uses"]["OTHER"] for value in (1, 2.5)],
    "unaligned": _digest(X[1:], 5, None) != _digest(X, 5, None),
    "other_int": [_digest(X, n, None) == _digest(X, 5, None) for n in (7, 16, 1, 2**33)],
    "constant": [_digest(X, 5, None, BLOCK=n) == _digest(X, 5, None, BLOCK=16) for n in (16, 32)],
    "redefined": _redefined(),
    "launch": _recorded(_launch()),
    "grids": [_recorded(_launch(grid))["asked"][0][0] for grid in (3, (1, 2, 3), [4, 5], lambda given: (given["n"],))],
    "no_grid": _recorded(_launch(()))["raised"],
    "odd_grid": _recorded(_launch((1.5,)))["raised"],
    "empty": _recorded(_launch((0,))),
    "failed": _recorded(_launch(), failure="out of bounds"),
    "warmup": _recorded(lambda: kernel.warmup(X, 5, None, grid=(1,))),
    "tuned": [[grid[0], is_tried] for grid, _, _, is_tried, _ in TUNED[0]["asked"]],
    "tuned_events": len(TUNED[0]["events"]),
    "tuned_by_files": [run["asked"] == TUNED[0]["asked"] for run in TUNED],
    "all_left_out": _recorded(_ablated(())),
    "kept": [kept for *_, kept in _recorded(_ablated(("moves",)))["asked"]],
    "one_left_out": [kept for *_, kept in _recorded(_ablated((), [1]))["asked"]],
    "cheat": _recorded(lambda: Cheat(kernel.fn)[(1,)](X, 5, None))["raised"],
}
print(json.dumps(CASES))
