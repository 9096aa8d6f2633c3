# SPDX-License-Identifier: Apache-2.0
"""Passes that a warp's access to shared memory takes: over 32 banks of 4 bytes, each of which gives one word a pass.

A site's first access of a launch is looked at, and then one of 61: a number that no number of warps, which take turns,
has a divisor in common with.
"""

from __future__ import annotations

from verl_kernel.env.executor.library.function import Function
from verl_kernel.env.executor.lowering import sites
from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key

_EACH = 61
_BANKED = 128
"""Bytes of all banks."""
_NUMBERS = WIDE.ints(32)


def count_passes(made: Function, size: int, lanes: str, phase: int = LANES) -> None:
    """Count the passes of some accesses to `%addresses`, whose lanes are served so many at a time."""
    left = made.site(sites.LEFT)
    made.branch(made.op(f"icmp eq i64 {left}, 0"), "sample", "sampled")
    made.label("sample")
    found = made.op(made.call("i64", ("passes", max(4, size), phase), f"{_NUMBERS} %addresses", f"i32 {lanes}"))
    made.add_to(made.word("%site", sites.PASSES), found)
    made.add_to(made.word("%site", sites.SAMPLES), "1")
    made.do("br label %sampled")
    made.label("sampled")
    last = made.op(f"phi i64 [ {left}, %entry ], [ {_EACH}, %sample ]")
    made.do(f"store i64 {made.op(f'sub i64 {last}, 1')}, ptr {made.word('%site', sites.LEFT)}")


def passes_text(key: Key) -> tuple[Function, str]:
    """`passes_<bytes>_<phase>(addresses, lanes)`: in each phase, the most different words that one bank has to give."""
    made, size, phase = Function(), int(key[1]), int(key[2])
    banks, phases = _BANKED // size, LANES // phase
    words = made.op(f"lshr {_NUMBERS} %addresses, {WIDE.const(32, size.bit_length() - 1)}")
    for name, length in (("held", LANES), ("counts", phases * banks), ("most", phases)):
        made.do(f"%{name} = alloca [{length} x i32], align 64")
    made.do(f"store {_NUMBERS} {words}, ptr %held")
    made.do(f"store [{phases * banks} x i32] zeroinitializer, ptr %counts")
    made.do(f"store [{phases} x i32] zeroinitializer, ptr %most")
    made.each_lane("%lanes", "entry", lambda lane: _word(made, words, lane, banks, phase))
    total = made.op("add i64 0, 0")
    for number in range(phases):
        most = made.op(f"load i32, ptr {made.op(f'getelementptr i32, ptr %most, i32 {number}')}")
        total = made.op(f"add i64 {total}, {made.op(f'zext i32 {most} to i64')}")
    made.do(f"ret i64 {total}")
    return made, made.text("i64", key, (f"{_NUMBERS} %addresses", "i32 %lanes"))


def _word(made: Function, words: str, lane: str, banks: int, phase: int) -> None:
    """Let a bank give a lane's word, unless it gives it to an earlier lane of the phase."""
    word = made.op(f"load i32, ptr {made.op(f'getelementptr i32, ptr %held, i32 {lane}')}")
    equal = made.bits(made.op(f"icmp eq {_NUMBERS} {words}, {made.splat('i32', word)}"))
    number = made.op(f"udiv i32 {lane}, {phase}")
    here = made.op(f"shl i32 {(1 << phase) - 1 if phase < LANES else -1}, {made.op(f'mul i32 {number}, {phase}')}")
    below = made.op(f"sub i32 {made.op(f'shl i32 1, {lane}')}, 1")
    earlier = made.op(f"and i32 {made.op(f'and i32 {equal}, %lanes')}, {made.op(f'and i32 {here}, {below}')}")
    is_new = made.op(f"zext i1 {made.op(f'icmp eq i32 {earlier}, 0')} to i32")
    bank = made.op(f"add i32 {made.op(f'and i32 {word}, {banks - 1}')}, {made.op(f'mul i32 {number}, {banks}')}")
    at = made.op(f"getelementptr i32, ptr %counts, i32 {bank}")
    now = made.op(f"add i32 {made.op(f'load i32, ptr {at}')}, {is_new}")
    made.do(f"store i32 {now}, ptr {at}")
    most_at = made.op(f"getelementptr i32, ptr %most, i32 {number}")
    old = made.op(f"load i32, ptr {most_at}")
    made.do(f"store i32 {made.overloaded('umax', 'i32', now, old)}, ptr {most_at}")
