# SPDX-License-Identifier: Apache-2.0
"""Counts what a launch's accesses request from the caches, in native code: 32-byte sectors, by buffer and by block.

Each block has its own cache, as its share of an SM's first level: lines of 128 bytes whose four sectors are filled one
by one. Four consecutive lines are kept in one entry, found by hashing, and expire when as many lines as fit have been
added since one of them was last used. Loads look there first; what they miss, stores and atomics go to the second
level. Buffers are counted by what goes there. What blocks load is sampled by its location (library/reuse_distance.py).
"""

from __future__ import annotations

from functools import reduce

from verl_kernel.env.emulator.library import context, reuse_distance
from verl_kernel.env.emulator.library.context import FunctionWriter
from verl_kernel.env.emulator.lowering import sites
from verl_kernel.env.emulator.lowering.writer import LANES, WIDE, Key

# Passes that a warp's access to shared memory takes over 32 banks of 4 bytes; each bank delivers one word per pass.
#
# A site's first access of a launch is sampled, then one of 61: this prime shares no divisor with the number of warps,
# which run in rotation, so that all warps are sampled.


_SAMPLE_EVERY = 61
_BANKED = 128
"""Bytes of all banks."""
_NUMBERS = WIDE.ints(32)


def count_passes(body: FunctionWriter, size: int, lanes: str, phase: int = LANES) -> None:
    """Count the passes of some accesses to `%addresses`; `phase` lanes are served at a time."""
    until_sample = body.site(sites.LEFT)
    body.begin_if(body.op(f"icmp eq i64 {until_sample}, 0"), "sample", "sampled")
    passes = body.op(body.call("i64", ("passes", max(4, size), phase), f"{_NUMBERS} %addresses", f"i32 {lanes}"))
    body.add_to(body.word("%site", sites.PASSES), passes)
    body.add_to(body.word("%site", sites.SAMPLES), "1")
    body.fall_into("sampled")
    next_count = body.op(f"phi i64 [ {until_sample}, %entry ], [ {_SAMPLE_EVERY}, %sample ]")
    body.do(f"store i64 {body.op(f'sub i64 {next_count}, 1')}, ptr {body.word('%site', sites.LEFT)}")


def passes_text(key: Key) -> tuple[FunctionWriter, str]:
    """`passes_<bytes>_<phase>(addresses, lanes)`: per phase, the most distinct words that one bank must deliver."""
    body, size, phase = FunctionWriter(), int(key[1]), int(key[2])
    # Wider words take as many banks together: a phase delivers 128 bytes.
    banks, phases = _BANKED // size, LANES // phase
    words = body.op(f"lshr {_NUMBERS} %addresses, {WIDE.const(32, size.bit_length() - 1)}")
    for name, length in (("held", LANES), ("counts", phases * banks), ("most", phases)):
        body.do(f"%{name} = alloca [{length} x i32], align 64")
    body.do(f"store {_NUMBERS} {words}, ptr %held")
    body.do(f"store [{phases * banks} x i32] zeroinitializer, ptr %counts")
    body.do(f"store [{phases} x i32] zeroinitializer, ptr %most")
    body.each_lane("%lanes", "entry", lambda lane: _count_word(body, words, lane, banks, phase))
    total = body.op("add i64 0, 0")
    for number in range(phases):
        worst = body.op(f"load i32, ptr {body.op(f'getelementptr i32, ptr %most, i32 {number}')}")
        total = body.op(f"add i64 {total}, {body.op(f'zext i32 {worst} to i64')}")
    body.do(f"ret i64 {total}")
    return body, body.text("i64", key, (f"{_NUMBERS} %addresses", "i32 %lanes"))


def _count_word(body: FunctionWriter, words: str, lane: str, banks: int, phase: int) -> None:
    """Add a lane's word to its bank's count, unless an earlier lane of the phase has the same word."""
    word = body.op(f"load i32, ptr {body.op(f'getelementptr i32, ptr %held, i32 {lane}')}")
    equal = body.bits(body.op(f"icmp eq {_NUMBERS} {words}, {body.splat('i32', word)}"))
    number = body.op(f"udiv i32 {lane}, {phase}")
    phase_lanes = body.op(
        f"shl i32 {(1 << phase) - 1 if phase < LANES else -1}, {body.op(f'mul i32 {number}, {phase}')}"
    )
    below = body.op(f"sub i32 {body.op(f'shl i32 1, {lane}')}, 1")
    same_word_before = body.op(
        f"and i32 {body.op(f'and i32 {equal}, %lanes')}, {body.op(f'and i32 {phase_lanes}, {below}')}"
    )
    # Lanes that read the same word share its delivery.
    is_new = body.op(f"zext i1 {body.op(f'icmp eq i32 {same_word_before}, 0')} to i32")
    bank = body.op(f"add i32 {body.op(f'and i32 {word}, {banks - 1}')}, {body.op(f'mul i32 {number}, {banks}')}")
    at = body.op(f"getelementptr i32, ptr %counts, i32 {bank}")
    now = body.op(f"add i32 {body.op(f'load i32, ptr {at}')}, {is_new}")
    body.do(f"store i32 {now}, ptr {at}")
    most_at = body.op(f"getelementptr i32, ptr %most, i32 {number}")
    old = body.op(f"load i32, ptr {most_at}")
    body.do(f"store i32 {body.overloaded('umax', 'i32', now, old)}, ptr {most_at}")


SECTOR, LINE = 32, 128
"""Bytes of a sector and of a line of NVIDIA's caches."""
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
"""Units of products whose operations on zeros are counted (`work.PRODUCTS`)."""
WORK_HEAD = WORK_VOID + len(VOID_UNITS)
"""Words before the weights; there is one weight for each block of instructions."""
_HASH = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: Fibonacci hashing
_READS = ("load", "fetch")
"""Verbs whose accesses are sampled."""
_ADDRESSES = WIDE.ints(64)


def span_text(key: Key) -> tuple[FunctionWriter, str]:
    """`span_<verb>(address, bytes, ctx, site, row)`: count the sectors of an access with consecutive lanes.

    Verbs are `load`; `fetch`, which bypasses the first level; `store`; and `atomic`, which loads and stores.
    """
    body, verb = FunctionWriter(), str(key[1])
    end = body.op(f"sub i64 {body.op('add i64 %address, %bytes')}, 1")
    shift = SECTOR.bit_length() - 1
    first, last = (body.op(f"lshr i64 {address}, {shift}") for address in ("%address", end))
    count = body.op(f"add i64 {body.op(f'sub i64 {last}, {first}')}, 1")
    if verb in _READS:
        reuse_distance.point_to(body)
    if verb == "load":
        _point_to_cache(body)
        ends = _by_lines(body, count, first, last)
    else:
        if verb in _READS:
            reuse_distance.note(body, body.op(f"lshr i64 {first}, {_PART}"), count)
        body.do("br label %done")
        ends = {"entry": (count, count, first, last)}
    _add_up(body, verb, ends)
    return body, body.text("void", key, ("i64 %address", "i64 %bytes", "ptr %ctx", "ptr %site", "i64 %row"))


def sectors_text(key: Key) -> tuple[FunctionWriter, str]:
    """`sectors_<verb>(addresses, lanes, ctx, site, row)`: count sectors for any lanes and addresses.

    Of a lane's access longer than 4 bytes, the first byte's sector counts: an aligned access lies in one sector.
    """
    body, verb = FunctionWriter(), str(key[1])
    body.do(f"%held = alloca {_ADDRESSES}, align 64")
    if verb in _READS:
        reuse_distance.point_to(body)
    if verb == "load":
        _point_to_cache(body)
    sector = body.op(f"lshr {_ADDRESSES} %addresses, {WIDE.const(64, SECTOR.bit_length() - 1)}")
    # Each lane's sector beside its neighbour's: in ascending order, changes are distinct sectors.
    before = body.shuffle("i64", sector, [0, *range(LANES - 1)])
    falls = body.bits(body.op(f"icmp ult {_ADDRESSES} {sector}, {before}"))
    is_full = body.op("icmp eq i32 %lanes, -1")
    body.do(f"store {_ADDRESSES} {sector}, ptr %held")
    # Only addresses in disorder need the loop over distinct sectors.
    body.begin_if(body.op(f"and i1 {is_full}, {body.op(f'icmp eq i32 {falls}, 0')}"), "easy", "apart")
    steps = body.bits(body.op(f"icmp ne {_ADDRESSES} {sector}, {before}"))
    changes = body.op(f"zext i32 {body.overloaded('ctpop', 'i32', steps)} to i64")
    count = body.op(f"add i64 {changes}, 1")
    first, last = (body.op(f"extractelement {_ADDRESSES} {sector}, i32 {lane}") for lane in (0, LANES - 1))
    ends = {"easy": (count, count, first, last)}
    if verb == "load":
        ends = {"head": (count, _in_order(body, steps), first, last)}
    else:
        if verb in _READS:
            reuse_distance.note(body, body.op(f"lshr i64 {first}, {_PART}"), count)
        body.do("br label %done")
    ends["loop"] = _by_distinct_sectors(body, sector, verb)
    _add_up(body, verb, ends)
    arguments = (f"{_ADDRESSES} %addresses", "i32 %lanes", "ptr %ctx", "ptr %site", "i64 %row")
    return body, body.text("void", key, arguments)


def _point_to_cache(body: FunctionWriter) -> None:
    body.do(f"%cache = load ptr, ptr {body.word('%ctx', context.CACHE)}")
    for name, word in (("now", CACHE_NOW), ("room", CACHE_ROOM)):
        body.do(f"%{name}_at = getelementptr i64, ptr %cache, i64 {word}")


def _by_lines(body: FunctionWriter, count: str, first: str, last: str) -> dict[str, tuple[str, str, str, str]]:
    """Look up consecutive sectors in the cache."""
    low, high = (body.op(f"lshr i64 {sector}, {_PART}") for sector in (first, last))
    skipped = body.op(f"and i64 {first}, 15")
    above = body.op(f"sub i64 15, {body.op(f'and i64 {last}, 15')}")
    body.fall_into("line")
    part = body.op(f"phi i64 [ {low}, %entry ], [ %next_part, %line ]")
    missed = body.op("phi i64 [ 0, %entry ], [ %line_missed, %line ]")
    skip_low = body.op(f"select i1 {body.op(f'icmp eq i64 {part}, {low}')}, i64 {skipped}, i64 0")
    skip_high = body.op(f"select i1 {body.op(f'icmp eq i64 {part}, {high}')}, i64 {above}, i64 0")
    sector_bits = body.op(f"and i64 {body.op(f'shl i64 65535, {skip_low}')}, {body.op(f'lshr i64 65535, {skip_high}')}")
    body.do(f"%line_missed = add i64 {missed}, {_use_sectors(body, part, sector_bits)}")
    body.do(f"%next_part = add i64 {part}, 1")
    body.branch(body.op(f"icmp ule i64 %next_part, {high}"), "line", "done")
    return {"line": (count, "%line_missed", first, last)}


def _in_order(body: FunctionWriter, steps: str) -> str:
    """Look up the sectors of lanes in ascending order; returns how many the cache did not have."""
    # The first lane of each run of lanes in one sector.
    heads = body.op(f"or i32 {steps}, 1")
    body.fall_into("head")
    heads_left = body.op(f"phi i32 [ {heads}, %easy ], [ %other_heads, %head ]")
    missed = body.op("phi i64 [ 0, %easy ], [ %head_missed, %head ]")
    sector = _of_lane(body, body.intrinsic("cttz.i32", "i32", ("i32", heads_left), ("i1", "true")))
    body.do(f"%head_missed = add i64 {missed}, {_use_sector(body, sector)}")
    body.do(f"%other_heads = and i32 {heads_left}, {body.op(f'sub i32 {heads_left}, 1')}")
    body.branch(body.op("icmp eq i32 %other_heads, 0"), "done", "head")
    return "%head_missed"


def _by_distinct_sectors(body: FunctionWriter, sector: str, verb: str) -> tuple[str, str, str, str]:
    """Loop over the distinct sectors."""
    body.label("apart")
    body.fall_into("loop")
    lanes_left = body.op("phi i32 [ %lanes, %apart ], [ %less, %more ]")
    names = ("total", "missed", "low", "high")
    total, missed, low, high = (
        body.op(f"phi i64 [ {start}, %apart ], [ %{name}_next, %more ]")
        for name, start in zip(names, (0, 0, -1, 0), strict=True)
    )
    body.begin_unless(body.op(f"icmp eq i32 {lanes_left}, 0"), "done", "more")
    lane_sector = _of_lane(body, body.intrinsic("cttz.i32", "i32", ("i32", lanes_left), ("i1", "true")))
    differing = body.bits(body.op(f"icmp ne {_ADDRESSES} {sector}, {body.splat('i64', lane_sector)}"))
    body.do(f"%less = and i32 {lanes_left}, {differing}")
    body.do(f"%total_next = add i64 {total}, 1")
    body.do(f"%missed_next = add i64 {missed}, {_use_sector(body, lane_sector) if verb == 'load' else 1}")
    if verb == "fetch":
        reuse_distance.note(body, body.op(f"lshr i64 {lane_sector}, {_PART}"), "1")
    body.do(f"%low_next = {_smaller(body, low, lane_sector)}")
    body.do(f"%high_next = {_larger(body, high, lane_sector)}")
    body.do("br label %loop")
    return total, missed, low, high


def _of_lane(body: FunctionWriter, lane: str) -> str:
    """Load a lane's sector."""
    return body.op(f"load i64, ptr {body.op(f'getelementptr i64, ptr %held, i32 {lane}')}")


def _smaller(body: FunctionWriter, lhs: str, rhs: str) -> str:
    return f"select i1 {body.op(f'icmp ult i64 {lhs}, {rhs}')}, i64 {lhs}, i64 {rhs}"


def _larger(body: FunctionWriter, lhs: str, rhs: str) -> str:
    return f"select i1 {body.op(f'icmp ugt i64 {lhs}, {rhs}')}, i64 {lhs}, i64 {rhs}"


def _use_sector(body: FunctionWriter, sector: str) -> str:
    """Use a sector; returns 1 if the cache did not have it."""
    part = body.op(f"lshr i64 {sector}, {_PART}")
    return _use_sectors(body, part, body.op(f"shl i64 1, {body.op(f'and i64 {sector}, 15')}"))


def _use_sectors(body: FunctionWriter, part: str, sector_bits: str) -> str:
    """Use sectors of four lines; returns how many of them the cache did not have."""
    room, now = body.op("load i64, ptr %room_at"), body.op("load i64, ptr %now_at")
    # Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, 6.4).
    entry = body.op(f"lshr i64 {body.op(f'mul i64 {part}, {_HASH - (1 << 64)}')}, {65 - ENTRIES.bit_length()}")
    entry = body.op(f"add i64 {body.op(f'shl i64 {entry}, 1')}, {CACHE_HEAD}")
    tag_at = body.op(f"getelementptr i64, ptr %cache, i64 {entry}")
    state_at = body.word(tag_at, 1)
    tag, state = (body.op(f"load i64, ptr {at}") for at in (tag_at, state_at))
    age = body.op(f"sub i64 {now}, {body.op(f'lshr i64 {state}, 16')}")
    # An entry is as old as the lines that were added since: a cache that evicts the least recently used.
    is_there = body.op(f"and i1 {body.op(f'icmp eq i64 {tag}, {part}')}, {body.op(f'icmp ule i64 {age}, {room}')}")
    present = body.op(f"select i1 {is_there}, i64 {body.op(f'and i64 {state}, 65535')}, i64 0")
    present_after = body.op(f"or i64 {present}, {sector_bits}")
    # Only lines count as added: sectors of a line that is present take no room of their own.
    new_lines = body.op(f"xor i64 {_present_lines(body, present_after)}, {_present_lines(body, present)}")
    time_after = body.op(f"add i64 {now}, {body.overloaded('ctpop', 'i64', new_lines)}")
    state = body.op(f"or i64 {present_after}, {body.op(f'shl i64 {time_after}, 16')}")
    for value, at in ((part, tag_at), (state, state_at), (time_after, "%now_at")):
        body.do(f"store i64 {value}, ptr {at}")
    missed = body.overloaded("ctpop", "i64", body.op(f"xor i64 {present_after}, {present}"))
    reuse_distance.note(body, part, missed)
    return missed


def _present_lines(body: FunctionWriter, sector_bits: str) -> str:
    """Return a bit for each line with some sector present."""
    # Four sectors are a line: their bits are joined in its lowest one.
    for step in (1, 2):
        sector_bits = body.op(f"or i64 {sector_bits}, {body.op(f'lshr i64 {sector_bits}, {step}')}")
    return body.op(f"and i64 {sector_bits}, {0x1111}")


def _add_up(body: FunctionWriter, verb: str, ends: dict[str, tuple[str, str, str, str]]) -> None:
    """Add the counts to the site and to the buffer, and end the function."""
    body.label("done")
    total, missed, low, high = (
        body.op("phi i64 " + ", ".join(f"[ {values[index]}, %{label} ]" for label, values in ends.items()))
        for index in range(4)
    )
    body.add_to(body.word("%site", sites.SECTORS), total)
    if verb == "load":
        body.add_to(body.word("%site", sites.MISSED), missed)
    uses = body.word(body.context(context.USES), USES_HEAD)
    index = body.op(f"mul i64 %row, {2 * USE_WORDS}")
    for half in {"load": (0,), "fetch": (0,), "store": (1,), "atomic": (0, 1)}[verb]:
        use = body.op(f"getelementptr i64, ptr {uses}, i64 {body.op(f'add i64 {index}, {half * USE_WORDS}')}")
        body.add_to(use, missed)
        for word, value, chosen in ((1, low, _smaller), (2, high, _larger)):
            at = body.word(use, word)
            old = body.op(f"load i64, ptr {at}")
            body.do(f"store i64 {body.op(chosen(body, old, value))}, ptr {at}")
    body.do("ret void")


# Counts which part of a matrix product is computed on zeros, in native code.
#
# A row of A, a column of B or an index along k is not counted as computed if it holds only zeros, as where a tile
# extends beyond a tensor. Single zeros are data. The lanes' registers are those of library/matrices.py.


_ROWS, _COLUMNS, _TOGETHER = 16, 8, 4
"""Rows and columns of a product; lanes that hold a row, or a column."""


def voids_text(key: Key) -> tuple[FunctionWriter, str]:
    """`voids_<k>_<count>_<word>(a..., b..., ctx)`: add the operations on zeros to a word of the launch's work.

    A register holds `count` elements along k.
    """
    body, (depth, count, word) = FunctionWriter(), map(int, key[1:4])
    halves = depth // (_TOGETHER * count)
    first = [_filled(body, f"%a{index}") for index in range(2 * halves)]
    second = [_filled(body, f"%b{index}") for index in range(halves)]
    # Registers of A come in pairs: a row of the upper eight, and its fellow of the lower eight.
    rows = body.op(f"add i32 {_count_groups(body, first[::2])}, {_count_groups(body, first[1::2])}")
    area = body.op(f"mul i32 {rows}, {_count_groups(body, second)}")
    depth_counts = [
        _counted(body, body.op(f"and i32 {_depth_mask(body, pair)}, {_depth_mask(body, [column])}"))
        for pair, column in zip(zip(first[::2], first[1::2], strict=True), second, strict=True)
    ]
    depth_sum = reduce(lambda partial, count: body.op(f"add i32 {partial}, {count}"), depth_counts)
    used = body.op(f"mul i32 {area}, {depth_sum}")
    total = _ROWS * _COLUMNS * _TOGETHER * halves
    # Operations on zeros are what is left of all of them; each product counts as two.
    void = body.op(f"mul i32 {body.op(f'sub i32 {total}, {used}')}, {2 * count}")
    body.add_to(body.word(body.context(context.WORK), WORK_VOID + word), body.op(f"zext i32 {void} to i64"))
    body.do("ret void")
    names = [f"%a{index}" for index in range(2 * halves)] + [f"%b{index}" for index in range(halves)]
    return body, body.text("void", key, [*(f"{WIDE.ints(32)} {name}" for name in names), "ptr %ctx"])


def _filled(body: FunctionWriter, register: str) -> str:
    """Return a bit for each lane whose register is not zero."""
    return body.bits(body.op(f"icmp ne {WIDE.ints(32)} {register}, zeroinitializer"))


def _any(body: FunctionWriter, masks: list[str]) -> str:
    return reduce(lambda union, mask: body.op(f"or i32 {union}, {mask}"), masks)


def _count_groups(body: FunctionWriter, masks: list[str]) -> str:
    """Count the rows, or columns, with an element that is not zero."""
    filled = _any(body, masks)
    for step in (1, 2):
        filled = body.op(f"or i32 {filled}, {body.op(f'lshr i32 {filled}, {step}')}")
    return _counted(body, body.op(f"and i32 {filled}, {0x11111111}"))


def _depth_mask(body: FunctionWriter, masks: list[str] | tuple[str, ...]) -> str:
    """Return a bit for each index along k with an element that is not zero."""
    filled = _any(body, list(masks))
    for step in (LANES // 2, LANES // 4, LANES // 8):
        filled = body.op(f"or i32 {filled}, {body.op(f'lshr i32 {filled}, {step}')}")
    return body.op(f"and i32 {filled}, {(1 << _TOGETHER) - 1}")


def _counted(body: FunctionWriter, mask: str) -> str:
    return body.overloaded("ctpop", "i32", mask)
