# SPDX-License-Identifier: Apache-2.0
"""Counts what a launch's accesses request from the caches, in native code: 32-byte sectors, by buffer and by block.

Each block has its own cache, as its share of an SM's first level: lines of 128 bytes whose four sectors are filled one
by one. Four consecutive lines are kept in one entry, found by hashing, and expire when as many lines as fit have been
added since one of them was last used. Loads look there first; what they miss, stores and atomics go to the second
level. Buffers are counted by what goes there. What blocks load is sampled by its place (library/rereads.py).
"""

from __future__ import annotations

from functools import reduce

from verl_kernel.env.executor.library import context, rereads
from verl_kernel.env.executor.library.context import Function
from verl_kernel.env.executor.lowering import sites
from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key

# Passes that a warp's access to shared memory takes over 32 banks of 4 bytes; each bank delivers one word per pass.
#
# A site's first access of a launch is sampled, then one of 61: this prime shares no divisor with the number of warps,
# which run in rotation, so that all warps are sampled.


_EACH = 61
_BANKED = 128
"""Bytes of all banks."""
_NUMBERS = WIDE.ints(32)


def count_passes(made: Function, size: int, lanes: str, phase: int = LANES) -> None:
    """Count the passes of some accesses to `%addresses`; `phase` lanes are served at a time."""
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
    """`passes_<bytes>_<phase>(addresses, lanes)`: per phase, the most distinct words that one bank must deliver."""
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
    """Add a lane's word to its bank's count, unless an earlier lane of the phase has the same word."""
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


SECTOR, LINE = 32, 128
USE_WORDS = 4
"""Words of a buffer's reads, and of its writes: for the block that runs, sectors, the first and the last one; for all
blocks, sectors, those without repeated accesses of a block, the first and the last one."""
USES_HEAD = 4
"""Words before the buffers' words of the block that runs: its work, and what it has loaded (`rereads.USES_TIME`)."""
ENTRIES, MOST_LINES = 1024, 1024
"""Entries of the cache, for four lines each; the largest number of lines that it may hold."""
_PART = 4
"""Binary logarithm of the number of sectors in four lines."""
CACHE_NOW, CACHE_ROOM, CACHE_HEAD = range(3)
"""Words of the cache: lines that were added, how many fit; then for each entry, which lines it holds, and the time of
their last use, times 65536, plus a bit for each sector that is present."""
WORK_LAST, WORK_MOST, SECTORS_MOST, WORK_BLOCKS, WORK_VOID = range(5)
"""Words of the launch's work: the sum when a block last paused, the largest work of a block, sectors of the block that
moves most, how many weights there are; operations of products on zeros, a word for each of `VOID_UNITS`."""
VOID_UNITS = ("half", "tf32")
WORK_HEAD = WORK_VOID + len(VOID_UNITS)
"""Words before the weights; there is one weight for each block of instructions."""
_HASH = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: Fibonacci hashing
_READS = ("load", "fetch")
"""Verbs whose accesses are sampled."""
_ADDRESSES = WIDE.ints(64)


def span_text(key: Key) -> tuple[Function, str]:
    """`span_<verb>(address, bytes, ctx, site, row)`: count the sectors of an access with consecutive lanes.

    Verbs are `load`; `fetch`, which bypasses the first level; `store`; and `atomic`, which loads and stores.
    """
    made, verb = Function(), str(key[1])
    end = made.op(f"sub i64 {made.op('add i64 %address, %bytes')}, 1")
    shift = SECTOR.bit_length() - 1
    first, last = (made.op(f"lshr i64 {address}, {shift}") for address in ("%address", end))
    count = made.op(f"add i64 {made.op(f'sub i64 {last}, {first}')}, 1")
    if verb in _READS:
        rereads.point_to(made)
    if verb == "load":
        _point_to_cache(made)
        ends = _by_lines(made, count, first, last)
    else:
        if verb in _READS:
            rereads.note(made, made.op(f"lshr i64 {first}, {_PART}"), count)
        made.do("br label %done")
        ends = {"entry": (count, count, first, last)}
    _add_up(made, verb, ends)
    return made, made.text("void", key, ("i64 %address", "i64 %bytes", "ptr %ctx", "ptr %site", "i64 %row"))


def sectors_text(key: Key) -> tuple[Function, str]:
    """`sectors_<verb>(addresses, lanes, ctx, site, row)`: count sectors for any lanes and addresses.

    Of a lane's access longer than 4 bytes, the first byte's sector counts: an aligned access lies in one sector.
    """
    made, verb = Function(), str(key[1])
    made.do(f"%held = alloca {_ADDRESSES}, align 64")
    if verb in _READS:
        rereads.point_to(made)
    if verb == "load":
        _point_to_cache(made)
    sector = made.op(f"lshr {_ADDRESSES} %addresses, {WIDE.const(64, SECTOR.bit_length() - 1)}")
    before = made.shuffle("i64", sector, [0, *range(LANES - 1)])
    falls = made.bits(made.op(f"icmp ult {_ADDRESSES} {sector}, {before}"))
    is_full = made.op("icmp eq i32 %lanes, -1")
    made.do(f"store {_ADDRESSES} {sector}, ptr %held")
    made.branch(made.op(f"and i1 {is_full}, {made.op(f'icmp eq i32 {falls}, 0')}"), "easy", "apart")
    made.label("easy")
    steps = made.bits(made.op(f"icmp ne {_ADDRESSES} {sector}, {before}"))
    changes = made.op(f"zext i32 {made.overloaded('ctpop', 'i32', steps)} to i64")
    count = made.op(f"add i64 {changes}, 1")
    first, last = (made.op(f"extractelement {_ADDRESSES} {sector}, i32 {lane}") for lane in (0, LANES - 1))
    ends = {"easy": (count, count, first, last)}
    if verb == "load":
        ends = {"head": (count, _in_order(made, steps), first, last)}
    else:
        if verb in _READS:
            rereads.note(made, made.op(f"lshr i64 {first}, {_PART}"), count)
        made.do("br label %done")
    ends["loop"] = _distinct(made, sector, verb)
    _add_up(made, verb, ends)
    arguments = (f"{_ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site", "i64 %row")
    return made, made.text("void", key, arguments)


def _point_to_cache(made: Function) -> None:
    made.do(f"%cache = load ptr, ptr {made.word('%ctx', context.CACHE)}")
    for name, word in (("now", CACHE_NOW), ("room", CACHE_ROOM)):
        made.do(f"%{name}_at = getelementptr i64, ptr %cache, i64 {word}")


def _by_lines(made: Function, count: str, first: str, last: str) -> dict[str, tuple[str, str, str, str]]:
    """Look up consecutive sectors in the cache."""
    low, high = (made.op(f"lshr i64 {sector}, {_PART}") for sector in (first, last))
    skipped = made.op(f"and i64 {first}, 15")
    above = made.op(f"sub i64 15, {made.op(f'and i64 {last}, 15')}")
    made.do("br label %line")
    made.label("line")
    part = made.op(f"phi i64 [ {low}, %entry ], [ %next_part, %line ]")
    missed = made.op("phi i64 [ 0, %entry ], [ %line_missed, %line ]")
    left = made.op(f"select i1 {made.op(f'icmp eq i64 {part}, {low}')}, i64 {skipped}, i64 0")
    right = made.op(f"select i1 {made.op(f'icmp eq i64 {part}, {high}')}, i64 {above}, i64 0")
    wanted = made.op(f"and i64 {made.op(f'shl i64 65535, {left}')}, {made.op(f'lshr i64 65535, {right}')}")
    made.do(f"%line_missed = add i64 {missed}, {_touch(made, part, wanted)}")
    made.do(f"%next_part = add i64 {part}, 1")
    made.branch(made.op(f"icmp ule i64 %next_part, {high}"), "line", "done")
    return {"line": (count, "%line_missed", first, last)}


def _in_order(made: Function, steps: str) -> str:
    """Look up the sectors of lanes in ascending order; returns how many the cache did not have."""
    heads = made.op(f"or i32 {steps}, 1")
    made.do("br label %head")
    made.label("head")
    rest = made.op(f"phi i32 [ {heads}, %easy ], [ %other_heads, %head ]")
    missed = made.op("phi i64 [ 0, %easy ], [ %head_missed, %head ]")
    one = _of_lane(made, made.intrinsic("cttz.i32", "i32", ("i32", rest), ("i1", "true")))
    made.do(f"%head_missed = add i64 {missed}, {_touch_one(made, one)}")
    made.do(f"%other_heads = and i32 {rest}, {made.op(f'sub i32 {rest}, 1')}")
    made.branch(made.op("icmp eq i32 %other_heads, 0"), "done", "head")
    return "%head_missed"


def _distinct(made: Function, sector: str, verb: str) -> tuple[str, str, str, str]:
    """Loop over the distinct sectors."""
    made.label("apart")
    made.do("br label %loop")
    made.label("loop")
    left = made.op("phi i32 [ %lanes, %apart ], [ %less, %more ]")
    names = ("total", "missed", "low", "high")
    total, missed, low, high = (
        made.op(f"phi i64 [ {start}, %apart ], [ %{name}_next, %more ]")
        for name, start in zip(names, (0, 0, -1, 0), strict=True)
    )
    made.branch(made.op(f"icmp eq i32 {left}, 0"), "done", "more")
    made.label("more")
    one = _of_lane(made, made.intrinsic("cttz.i32", "i32", ("i32", left), ("i1", "true")))
    others = made.bits(made.op(f"icmp ne {_ADDRESSES} {sector}, {made.splat('i64', one)}"))
    made.do(f"%less = and i32 {left}, {others}")
    made.do(f"%total_next = add i64 {total}, 1")
    made.do(f"%missed_next = add i64 {missed}, {_touch_one(made, one) if verb == 'load' else 1}")
    if verb == "fetch":
        rereads.note(made, made.op(f"lshr i64 {one}, {_PART}"), "1")
    made.do(f"%low_next = {_least(made, low, one)}")
    made.do(f"%high_next = {_most(made, high, one)}")
    made.do("br label %loop")
    return total, missed, low, high


def _of_lane(made: Function, lane: str) -> str:
    """Load a lane's sector."""
    return made.op(f"load i64, ptr {made.op(f'getelementptr i64, ptr %held, i32 {lane}')}")


def _least(made: Function, left: str, right: str) -> str:
    return f"select i1 {made.op(f'icmp ult i64 {left}, {right}')}, i64 {left}, i64 {right}"


def _most(made: Function, left: str, right: str) -> str:
    return f"select i1 {made.op(f'icmp ugt i64 {left}, {right}')}, i64 {left}, i64 {right}"


def _touch_one(made: Function, sector: str) -> str:
    """Use a sector; returns 1 if the cache did not have it."""
    part = made.op(f"lshr i64 {sector}, {_PART}")
    return _touch(made, part, made.op(f"shl i64 1, {made.op(f'and i64 {sector}, 15')}"))


def _touch(made: Function, part: str, wanted: str) -> str:
    """Use sectors of four lines; returns how many of them the cache did not have."""
    room, now = made.op("load i64, ptr %room_at"), made.op("load i64, ptr %now_at")
    place = made.op(f"lshr i64 {made.op(f'mul i64 {part}, {_HASH - (1 << 64)}')}, {65 - ENTRIES.bit_length()}")
    place = made.op(f"add i64 {made.op(f'shl i64 {place}, 1')}, {CACHE_HEAD}")
    tag_at = made.op(f"getelementptr i64, ptr %cache, i64 {place}")
    state_at = made.word(tag_at, 1)
    tag, state = (made.op(f"load i64, ptr {at}") for at in (tag_at, state_at))
    age = made.op(f"sub i64 {now}, {made.op(f'lshr i64 {state}, 16')}")
    is_there = made.op(f"and i1 {made.op(f'icmp eq i64 {tag}, {part}')}, {made.op(f'icmp ule i64 {age}, {room}')}")
    had = made.op(f"select i1 {is_there}, i64 {made.op(f'and i64 {state}, 65535')}, i64 0")
    has = made.op(f"or i64 {had}, {wanted}")
    come = made.op(f"xor i64 {_lines(made, has)}, {_lines(made, had)}")
    later = made.op(f"add i64 {now}, {made.overloaded('ctpop', 'i64', come)}")
    state = made.op(f"or i64 {has}, {made.op(f'shl i64 {later}, 16')}")
    for value, at in ((part, tag_at), (state, state_at), (later, "%now_at")):
        made.do(f"store i64 {value}, ptr {at}")
    missed = made.overloaded("ctpop", "i64", made.op(f"xor i64 {has}, {had}"))
    rereads.note(made, part, missed)
    return missed


def _lines(made: Function, held: str) -> str:
    """Return a bit for each line with some sector present."""
    for step in (1, 2):
        held = made.op(f"or i64 {held}, {made.op(f'lshr i64 {held}, {step}')}")
    return made.op(f"and i64 {held}, {0x1111}")


def _add_up(made: Function, verb: str, ends: dict[str, tuple[str, str, str, str]]) -> None:
    """Add the counts to the site and to the buffer, and end the function."""
    made.label("done")
    total, missed, low, high = (
        made.op("phi i64 " + ", ".join(f"[ {values[place]}, %{label} ]" for label, values in ends.items()))
        for place in range(4)
    )
    made.add_to(made.word("%site", sites.SECTORS), total)
    if verb == "load":
        made.add_to(made.word("%site", sites.MISSED), missed)
    uses = made.word(made.context(context.USES), USES_HEAD)
    place = made.op(f"mul i64 %row, {2 * USE_WORDS}")
    for half in {"load": (0,), "fetch": (0,), "store": (1,), "atomic": (0, 1)}[verb]:
        use = made.op(f"getelementptr i64, ptr {uses}, i64 {made.op(f'add i64 {place}, {half * USE_WORDS}')}")
        made.add_to(use, missed)
        for word, value, chosen in ((1, low, _least), (2, high, _most)):
            at = made.word(use, word)
            old = made.op(f"load i64, ptr {at}")
            made.do(f"store i64 {made.op(chosen(made, old, value))}, ptr {at}")
    made.do("ret void")


# Counts which part of a matrix product is computed on zeros, in native code.
#
# A row of A, a column of B or a place along k is not counted as computed if it holds only zeros, as where a tile
# extends beyond a tensor. Single zeros are data. The lanes' registers are those of library/matrices.py.


_ROWS, _COLUMNS, _TOGETHER = 16, 8, 4
"""Rows and columns of a product; lanes that hold a row, or a column."""


def voids_text(key: Key) -> tuple[Function, str]:
    """`voids_<k>_<count>_<word>(a..., b..., ctx)`: add the operations on zeros to a word of the launch's work.

    A register holds `count` elements along k.
    """
    made, (depth, count, word) = Function(), map(int, key[1:4])
    halves = depth // (_TOGETHER * count)
    first = [_filled(made, f"%a{place}") for place in range(2 * halves)]
    second = [_filled(made, f"%b{place}") for place in range(halves)]
    rows = made.op(f"add i32 {_groups(made, first[::2])}, {_groups(made, first[1::2])}")
    area = made.op(f"mul i32 {rows}, {_groups(made, second)}")
    places = [
        _counted(made, made.op(f"and i32 {_along(made, pair)}, {_along(made, [other])}"))
        for pair, other in zip(zip(first[::2], first[1::2], strict=True), second, strict=True)
    ]
    used = made.op(f"mul i32 {area}, {reduce(lambda one, other: made.op(f'add i32 {one}, {other}'), places)}")
    total = _ROWS * _COLUMNS * _TOGETHER * halves
    void = made.op(f"mul i32 {made.op(f'sub i32 {total}, {used}')}, {2 * count}")
    made.add_to(made.word(made.context(context.WORK), WORK_VOID + word), made.op(f"zext i32 {void} to i64"))
    made.do("ret void")
    names = [f"%a{place}" for place in range(2 * halves)] + [f"%b{place}" for place in range(halves)]
    return made, made.text("void", key, [*(f"{WIDE.ints(32)} {name}" for name in names), "ptr %ctx"])


def _filled(made: Function, register: str) -> str:
    """Return a bit for each lane whose register is not zero."""
    return made.bits(made.op(f"icmp ne {WIDE.ints(32)} {register}, zeroinitializer"))


def _any(made: Function, masks: list[str]) -> str:
    return reduce(lambda one, other: made.op(f"or i32 {one}, {other}"), masks)


def _groups(made: Function, masks: list[str]) -> str:
    """Count the rows, or columns, with an element that is not zero."""
    found = _any(made, masks)
    for step in (1, 2):
        found = made.op(f"or i32 {found}, {made.op(f'lshr i32 {found}, {step}')}")
    return _counted(made, made.op(f"and i32 {found}, {0x11111111}"))


def _along(made: Function, masks: list[str] | tuple[str, ...]) -> str:
    """Return a bit for each place along k with an element that is not zero."""
    found = _any(made, list(masks))
    for step in (LANES // 2, LANES // 4, LANES // 8):
        found = made.op(f"or i32 {found}, {made.op(f'lshr i32 {found}, {step}')}")
    return made.op(f"and i32 {found}, {(1 << _TOGETHER) - 1}")


def _counted(made: Function, mask: str) -> str:
    return made.overloaded("ctpop", "i32", mask)
