# SPDX-License-Identifier: Apache-2.0
"""Kernels with races and their honest neighbours, launched with a watch; test_programs.py runs them in a process.

Prints a line of JSON: for each program the kind of its fault (None: there was none), its sentence, and what was not
watched.
"""

import json

import torch
import triton
import triton.language as tl

from verl_kernel.env.executor import driver
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.kernel import Kernel, Watch

driver.activate()
WATCH = Watch()


@triton.jit
def histogram_kernel(x_ptr, count_ptr, ATOMIC: tl.constexpr):
    bins = tl.load(x_ptr + tl.program_id(0) * 32 + tl.arange(0, 32))
    if ATOMIC:
        tl.atomic_add(count_ptr + bins, 1)
    else:
        tl.store(count_ptr + bins, tl.load(count_ptr + bins) + 1)


def count(is_atomic, warps):
    found = torch.zeros(64, dtype=torch.int32)
    histogram_kernel[(8,)](torch.arange(256) % 50, found, ATOMIC=is_atomic, num_warps=warps)
    assert not is_atomic or found.sum() == 256


@triton.jit
def total_kernel(x_ptr, out_ptr, ATOMIC: tl.constexpr):
    x = tl.sum(tl.load(x_ptr + tl.program_id(0) * 256 + tl.arange(0, 256)), 0)
    if ATOMIC:
        tl.atomic_add(out_ptr, x)
    else:
        tl.store(out_ptr, x)


def total(x, is_atomic):
    out = torch.zeros(1)
    total_kernel[(4,)](x, out, ATOMIC=is_atomic)
    assert not is_atomic or out.item() == 1024


@triton.jit
def handover_kernel(data_ptr, flag_ptr, out_ptr, TELLS: tl.constexpr, HEARS: tl.constexpr, WAITS: tl.constexpr):
    where = tl.arange(0, 256)
    if tl.program_id(0) == 0:
        tl.store(data_ptr + where, where)
        tl.debug_barrier()
        if TELLS == "store":
            tl.store(flag_ptr, 1)
        else:
            tl.atomic_xchg(flag_ptr, 1, sem=TELLS)
    else:
        seen = tl.atomic_add(flag_ptr, 0, sem=HEARS)
        if WAITS:
            while seen == 0:
                seen = tl.atomic_add(flag_ptr, 0, sem=HEARS)
        tl.debug_barrier()
        tl.store(out_ptr + where, tl.load(data_ptr + where) + seen)


def hand_over(tells, hears, waits=True):
    data, flag, out = (torch.zeros(size, dtype=torch.int32) for size in (256, 1, 256))
    handover_kernel[(2,)](data, flag, out, TELLS=tells, HEARS=hears, WAITS=waits)
    assert not waits or torch.equal(out, torch.arange(256, dtype=torch.int32) + 1)


@triton.jit
def locked_kernel(x_ptr, lock_ptr, sum_ptr, ENTERS: tl.constexpr, LEAVES: tl.constexpr, BARRIER: tl.constexpr):
    where = tl.arange(0, 512)
    x = tl.load(x_ptr + tl.program_id(0) * 512 + where)
    while tl.atomic_cas(lock_ptr, 0, 1, sem=ENTERS) == 1:
        pass
    tl.store(sum_ptr + where, tl.load(sum_ptr + where) + x)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0, sem=LEAVES)


def add_up(enters="acquire", leaves="release", barrier=True):
    x, lock, total = torch.randint(0, 9, (7, 512)).float(), torch.zeros(1, dtype=torch.int32), torch.zeros(512)
    locked_kernel[(7,)](x, lock, total, ENTERS=enters, LEAVES=leaves, BARRIER=barrier)
    assert torch.equal(total, x.sum(0))


@triton.jit
def ticket_kernel(x_ptr, part_ptr, ticket_ptr, out_ptr, SEM: tl.constexpr, ALL: tl.constexpr, RESETS: tl.constexpr):
    number, blocks = tl.program_id(0), tl.num_programs(0)
    tl.store(part_ptr + number, tl.sum(tl.load(x_ptr + number * 256 + tl.arange(0, 256)), 0))
    tl.debug_barrier()
    ticket = tl.atomic_add(ticket_ptr, 1, sem=SEM)
    tl.debug_barrier()
    if (ticket == blocks - 1) | ALL:
        where = tl.arange(0, 32)
        tl.store(out_ptr + where * 0, tl.sum(tl.load(part_ptr + where, mask=where < blocks, other=0.0), 0))
        if RESETS:
            tl.store(ticket_ptr, 0)


def finish(sem="acq_rel", everybody=False, resets=False):
    x, part, out = torch.randint(0, 9, (9, 256)).float(), torch.zeros(9), torch.zeros(1)
    ticket = torch.zeros(1, dtype=torch.int32)
    ticket_kernel[(9,)](x, part, ticket, out, SEM=sem, ALL=everybody, RESETS=resets)
    assert everybody or out.item() == x.sum()
    assert not resets or not ticket.item()


@triton.jit
def shifted_kernel(x_ptr, TO: tl.constexpr):
    where = tl.program_id(0) * 128 + tl.arange(0, 128)
    x = tl.load(x_ptr + where + 1)
    tl.store(x_ptr + where + TO, x)


@triton.jit
def bytes_kernel(out_ptr, STEP: tl.constexpr):
    where = tl.arange(0, 32) * 4 + tl.program_id(0) * STEP
    tl.store(out_ptr + where, (tl.program_id(0) + 1).to(tl.int8))


@triton.jit
def grid_barrier_kernel(x_ptr, y_ptr, count_ptr, SEM: tl.constexpr):
    number, blocks, where = tl.program_id(0), tl.num_programs(0), tl.arange(0, 128)
    for step in range(3):
        total = tl.zeros((128,), tl.float32)
        for other in range(blocks):
            total += tl.load(x_ptr + other * 128 + where)
        tl.debug_barrier()
        tl.atomic_add(count_ptr, 1, sem=SEM)
        while tl.atomic_add(count_ptr, 0, sem=SEM) < (2 * step + 1) * blocks:
            pass
        tl.debug_barrier()
        tl.store(x_ptr + number * 128 + where, total)
        tl.debug_barrier()
        tl.atomic_add(count_ptr, 1, sem=SEM)
        while tl.atomic_add(count_ptr, 0, sem=SEM) < (2 * step + 2) * blocks:
            pass
        tl.debug_barrier()


def all_steps(sem):
    x = torch.ones(5, 128)
    grid_barrier_kernel[(5,)](x, x, torch.zeros(1, dtype=torch.int32), SEM=sem)
    assert torch.equal(x, torch.full_like(x, 125))


@triton.jit
def chain_kernel(x_ptr, sums_ptr, flags_ptr, out_ptr, N: tl.constexpr):
    number, where = tl.program_id(0), tl.arange(0, N)
    x = tl.cumsum(tl.load(x_ptr + number * N + where), 0)
    before = 0.0
    if number > 0:
        while tl.atomic_add(flags_ptr + number - 1, 0, sem="acquire") == 0:
            pass
        tl.debug_barrier()
        before = tl.load(sums_ptr + number - 1)
    total = tl.sum(tl.where(where == N - 1, x, 0.0), 0) + before
    tl.store(sums_ptr + number, total)
    tl.debug_barrier()
    tl.atomic_xchg(flags_ptr + number, 1, sem="release")
    tl.store(out_ptr + number * N + where, x + before)


def chain():
    x, out = torch.randint(0, 9, (6, 64)).float(), torch.zeros(6, 64)
    chain_kernel[(6,)](x, torch.zeros(6), torch.zeros(6, dtype=torch.int32), out, N=64)
    assert torch.equal(out.flatten(), x.flatten().cumsum(0))


@triton.jit
def turned_kernel(x_ptr, BARRIER: tl.constexpr):
    where = tl.arange(0, 256)
    tl.store(x_ptr + where, where)
    if BARRIER:
        tl.debug_barrier()
    tl.store(x_ptr + 256 + where, tl.load(x_ptr + 255 - where))


@triton.jit
def split_kernel(a_ptr, b_ptr, c_ptr, lock_ptr, K, N: tl.constexpr, BK: tl.constexpr, SEM: tl.constexpr):
    rows, part = tl.arange(0, N), tl.program_id(0)
    total = tl.zeros((N, N), tl.float32)
    for start in range(0, K, BK):
        k = part * K + start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K * tl.num_programs(0) + k[None, :])
        total = tl.dot(a, tl.load(b_ptr + k[:, None] * N + rows[None, :]), total)
    while tl.atomic_add(lock_ptr, 0, sem=SEM) != part:
        pass
    tl.debug_barrier()
    where = c_ptr + rows[:, None] * N + rows[None, :]
    if part > 0:
        total += tl.load(where)
    tl.store(where, total)
    tl.debug_barrier()
    tl.atomic_add(lock_ptr, 1, sem=SEM)


def split(sem):
    a, b, c = torch.randn(64, 512).half(), torch.randn(512, 64).half(), torch.zeros(64, 64)
    split_kernel[(4,)](a, b, c, torch.zeros(1, dtype=torch.int32), 128, N=64, BK=32, SEM=sem, num_stages=3)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-2)


PROGRAMS = {
    "racing_histogram": lambda: count(is_atomic=False, warps=1),
    "honest_histogram": lambda: count(is_atomic=True, warps=4),
    "racing_reduction": lambda: total(torch.randn(1024), is_atomic=False),
    "honest_reduction": lambda: total(torch.ones(1024), is_atomic=True),
    "honest_equal_stores": lambda: total(torch.ones(1024), is_atomic=False),
    "honest_handover": lambda: hand_over("release", "acquire"),
    "honest_handover_by_both": lambda: hand_over("acq_rel", "acq_rel"),
    "racing_handover_without_release": lambda: hand_over("relaxed", "acquire"),
    "racing_handover_without_acquire": lambda: hand_over("release", "relaxed"),
    "racing_handover_by_a_plain_store": lambda: hand_over("store", "acquire"),
    "racing_look_that_does_not_wait": lambda: hand_over("acq_rel", "acq_rel", waits=False),
    "honest_lock": lambda: add_up(),
    "honest_lock_of_both": lambda: add_up("acq_rel", "acq_rel"),
    "racing_relaxed_lock": lambda: add_up("relaxed", "relaxed"),
    "racing_lock_left_relaxed": lambda: add_up(leaves="relaxed"),
    "racing_lock_left_before_other_warps_have_stored": lambda: add_up(barrier=False),
    "honest_ticket": lambda: finish(),
    "honest_ticket_that_is_reset": lambda: finish(resets=True),
    "racing_relaxed_ticket": lambda: finish("relaxed"),
    "racing_ticket_that_does_not_choose": lambda: finish(everybody=True),
    "racing_shift_in_place": lambda: shifted_kernel[(4,)](torch.randn(1100), TO=0, num_warps=1),
    "honest_shift": lambda: shifted_kernel[(4,)](torch.randn(1100), TO=513),
    "honest_bytes_of_one_word": lambda: bytes_kernel[(4,)](torch.zeros(256, dtype=torch.int8), STEP=1, num_warps=1),
    "racing_bytes": lambda: bytes_kernel[(4,)](torch.zeros(256, dtype=torch.int8), STEP=4, num_warps=1),
    "honest_barrier_of_the_grid": lambda: all_steps("acq_rel"),
    "racing_barrier_of_the_grid": lambda: all_steps("relaxed"),
    "honest_chain_of_sums": lambda: chain(),
    "honest_warps": lambda: turned_kernel[(1,)](torch.zeros(512, dtype=torch.int32), BARRIER=True),
    "racing_warps": lambda: turned_kernel[(1,)](torch.zeros(512, dtype=torch.int32), BARRIER=False),
    "honest_split_product": lambda: split("acq_rel"),
    "racing_split_product": lambda: split("relaxed"),
}
"""Those that race, and their honest neighbours."""


def watched(kernel, *arguments, **more):
    PLAIN(kernel, *arguments, watch=WATCH, **more)


PLAIN, Kernel.launch = Kernel.launch, watched


def outcome(function):
    torch.manual_seed(0)
    WATCH.not_watched.clear()
    WATCH.not_decided.clear()
    try:
        function()
    except Fault as fault:
        return fault.kind, str(fault), WATCH.not_watched + WATCH.not_decided, fault.line
    return None, "", WATCH.not_watched + WATCH.not_decided, None


if __name__ == "__main__":
    print(json.dumps({name: outcome(function) for name, function in PROGRAMS.items()}))
