# SPDX-License-Identifier: Apache-2.0
"""Samples what blocks load from the second-level cache, in native code, to find how far apart they load it again.

An access is logged if a hash of its location is small enough: so for each location all accesses are logged or none.
When the log fills, consecutive records of a block and location are merged; if that is not enough, half of the locations
are no longer sampled, and their records are removed (`vk_thin`).
"""

from __future__ import annotations

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.library.context import FunctionWriter, filled

LOG_USED, LOG_MASK, LOG_SALT, LOG_HEAD = range(4)
"""Words of the log: how many records there are; bits of a hash that must be 0; the salt of hashes; then the records."""
RECORD_PLACE, RECORD_BLOCK, RECORD_TIME, RECORD_WORDS = range(4)
"""Words of a record: the location (`base` in rereads.py); the block's number times 65536, plus how many
sectors were requested; how many the block had requested before."""
RECORDS, MOST = 1 << 13, 1 << 11
"""How many records fit in the log; how many are kept when a block pauses."""
ROW_SHIFT = 40
"""Bits of a location for the offset in the buffer, in units of 512 bytes; the buffer's row is above."""
USES_TIME = 1
"""Word of the block that runs (`traffic.USES_HEAD`): sectors that its loads have requested."""
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 divided by the golden ratio, as a signed number
_HASH_SHIFT = 24
"""The product's lowest bits depend on few bits of the location, so they are not used."""
_TEXT = """
define internal void @vk_thin(ptr %log) nounwind {
entry:
  %used.p = getelementptr i64, ptr %log, i64 @LOG_USED@
  %mask.p = getelementptr i64, ptr %log, i64 @LOG_MASK@
  %salt = load i64, %log[@LOG_SALT@]
  %mask.now = load i64, ptr %mask.p
  br label %look
look:
  %mask = phi i64 [ %mask.now, %entry ], [ %mask.next, %halved ]
  %used = load i64, ptr %used.p
  %is.full = icmp ugt i64 %used, @MOST@
  br i1 %is.full, label %each, label %out
each:  ; copy each record down, or join it with the last one if location and block are the same
  %i = phi i64 [ 0, %look ], [ %i.next, %each ]
  %kept = phi i64 [ 0, %look ], [ %kept.next, %each ]
  %from.part = mul i64 %i, @RECORD_WORDS@
  %from.at = add i64 %from.part, @LOG_HEAD@
  %from = getelementptr i64, ptr %log, i64 %from.at
  %place = load i64, ptr %from
  %block = load i64, %from[@RECORD_BLOCK@]
  %time = load i64, %from[@RECORD_TIME@]
  %to.part = mul i64 %kept, @RECORD_WORDS@
  %to.at = add i64 %to.part, @LOG_HEAD@
  %to = getelementptr i64, ptr %log, i64 %to.at
  %last = getelementptr i64, ptr %to, i64 -@RECORD_WORDS@
  %last.block.p = getelementptr i64, ptr %last, i64 @RECORD_BLOCK@
  %last.place = load i64, ptr %last
  %last.block = load i64, ptr %last.block.p
  %same.place = icmp eq i64 %place, %last.place
  %blocks.differ = xor i64 %block, %last.block
  %same.block = icmp ult i64 %blocks.differ, 65536
  %last.sectors = and i64 %last.block, 65535
  %fits = icmp ult i64 %last.sectors, 65520
  %is.first = icmp eq i64 %kept, 0
  %same = and i1 %same.place, %same.block
  %may.join = and i1 %same, %fits
  %joins = select i1 %is.first, i1 false, i1 %may.join
  %sectors = and i64 %block, 65535
  %more.sectors = select i1 %joins, i64 %sectors, i64 0
  %joined = add i64 %last.block, %more.sectors
  store i64 %joined, ptr %last.block.p
  store i64 %place, ptr %to
  store i64 %block, %to[@RECORD_BLOCK@]
  store i64 %time, %to[@RECORD_TIME@]
  %mixed = xor i64 %place, %salt
  %spread = mul i64 %mixed, @HASH@
  %hash = lshr i64 %spread, @HASH_SHIFT@
  %bits = and i64 %hash, %mask
  %is.drawn = icmp eq i64 %bits, 0
  %stays = select i1 %joins, i1 false, i1 %is.drawn
  %one = zext i1 %stays to i64
  %kept.next = add i64 %kept, %one
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %used
  br i1 %more, label %each, label %halved
halved:  ; half as many locations pass the mask from now on
  store i64 %kept.next, ptr %used.p
  store i64 %mask, ptr %mask.p
  %mask.twice = shl i64 %mask, 1
  %mask.next = or i64 %mask.twice, 1
  %is.spent = icmp eq i64 %mask, @ALL@
  br i1 %is.spent, label %out, label %look
out:
  ret void
}
"""


def thin_text() -> str:
    """Return `vk_thin(log)`, for the module of library/grid.py."""
    values = {
        "LOG_USED": LOG_USED,
        "LOG_MASK": LOG_MASK,
        "LOG_SALT": LOG_SALT,
        "LOG_HEAD": LOG_HEAD,
        "MOST": MOST,
        "RECORD_BLOCK": RECORD_BLOCK,
        "RECORD_TIME": RECORD_TIME,
        "RECORD_WORDS": RECORD_WORDS,
        "HASH_SHIFT": _HASH_SHIFT,
        "HASH": _HASH,
        "ALL": (1 << 32) - 1,
    }
    return filled(_TEXT, values)


def point_to(body: FunctionWriter) -> None:
    """Load what `note` needs; these values do not change within an access."""
    body.do(f"%log = load ptr, ptr {body.word('%ctx', context.REREADS)}")
    for name, word in (("mask", LOG_MASK), ("salt", LOG_SALT)):
        body.do(f"%log_{name} = load i64, ptr {body.word('%log', word)}")
    start = body.op(f"mul i64 %row, {context.ROW_WORDS}")
    row = body.op(f"getelementptr i64, ptr {body.context(context.TABLE)}, i64 {start}")
    body.do(f"%log_base = load i64, ptr {body.word(row, context.BASE)}")
    body.do(f"%log_block = shl i64 {body.context(context.NUMBER, 'i64')}, 16")
    body.do(f"%log_time_at = getelementptr i64, ptr {body.context(context.USES)}, i64 {USES_TIME}")


def note(body: FunctionWriter, part: str, sectors: str) -> None:
    """Log a request for sectors within 512 bytes, without a branch: a record not to be kept is overwritten."""
    used_at = body.word("%log", LOG_USED)
    used = body.op(f"load i64, ptr {used_at}")
    # Without the buffer's address, which differs between processes, the same places are sampled.
    location = body.op(f"sub i64 {part}, %log_base")
    spread = body.op(f"mul i64 {body.op(f'xor i64 {location}, %log_salt')}, {_HASH}")
    hashed = body.op(f"lshr i64 {spread}, {_HASH_SHIFT}")
    is_drawn = body.op(f"icmp eq i64 {body.op(f'and i64 {hashed}, %log_mask')}, 0")
    stays = body.op(f"and i1 {is_drawn}, {body.op(f'icmp ne i64 {sectors}, 0')}")
    record = body.op(f"getelementptr i64, ptr %log, i64 {body.op(f'mul i64 {used}, {RECORD_WORDS}')}")
    at = body.word(record, LOG_HEAD)
    body.do(f"store i64 {location}, ptr {at}")
    body.do(f"store i64 {body.op(f'or i64 %log_block, {sectors}')}, ptr {body.word(at, RECORD_BLOCK)}")
    time = body.op("load i64, ptr %log_time_at")
    body.do(f"store i64 {time}, ptr {body.word(at, RECORD_TIME)}")
    body.do(f"store i64 {body.op(f'add i64 {time}, {sectors}')}, ptr %log_time_at")
    after = body.op(f"add i64 {used}, {body.op(f'zext i1 {stays} to i64')}")
    # A full log overwrites its last record until the block pauses and the log is thinned.
    has_room = body.op(f"icmp ult i64 {after}, {RECORDS}")
    body.do(f"store i64 {body.op(f'select i1 {has_room}, i64 {after}, i64 {RECORDS - 1}')}, ptr {used_at}")
