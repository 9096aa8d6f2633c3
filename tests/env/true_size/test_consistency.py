# SPDX-License-Identifier: Apache-2.0
"""What counts as doing something else at the true size, by the executing process's account."""

import pytest

from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.true_size.consistency import Counted, difference, not_repeated

UNITS = {"half": 0, "tf32": 0, "fma": 0, "narrow": 0, "wide": 0, "issue": 1000, "integer": 300, "special": 0}


def one(
    scale=1, *, read=100, size=100, grid=(8, 1, 1), types=None, guessed=(), offered=1.0, void=0, stored=1.0, **units
):
    done = {unit: scale * number for unit, number in {**UNITS, "wide": 100, **units}.items()}
    areas = {
        "x": [scale * size, scale * read, scale * read, 0, 0],
        "o": [scale * size, 0, 0, scale * size, scale * size],
    }
    useful = 200 * scale
    return {
        "kernel": "k", "grid": list(grid), "operations": done, "useful": useful, "offered": round(useful * offered),
        "types": types or {"x": "*fp32", "n": "i32"}, "areas": areas, "guessed": list(guessed),
        "voids": {"half": 0, "tf32": scale * void}, "stores": [round(100 * scale * stored), 100 * scale],
    }  # fmt: skip


def forward(tally, flops=100, read=1.0, names=("k",)):
    return Counted([TraceEvent("launch", name) for name in names], [tally], flops, read)


def found(verified, true, flops=6400):
    return difference(
        [forward(item, flops=100 * 8**place) for place, item in enumerate(verified)], forward(true, flops)
    )


SMALL = [one(), one(8)]


def test_the_same_for_more_is_no_difference():
    assert found(SMALL, one(64)) is None


def test_a_wider_number_and_another_grid_are_none():
    assert found(SMALL, one(64, types={"x": "*fp32", "n": "i64"}, grid=(900, 1, 1))) is None


@pytest.mark.parametrize(
    ("true", "text"),
    [
        (one(64, types={"x": "*fp16", "n": "i32"}), "has x as *fp16 at the true size and as *fp32"),
        (one(64, read=1), "loads 1% of x at the true size and 100% at a reduced one"),
        (one(64, wide=50), "the operations grow less than the reference's"),
        (one(64, wide=10, half=90), "by the unit 'half' or a cheaper one"),
        (one(64, wide=60, narrow=40), "computes 40% in 16 bits"),
    ],
)
def test_less_at_the_true_size_is_the_candidates(true, text):
    unlike = found(SMALL, true)
    assert unlike.is_candidates
    assert text in unlike.sentence


def test_a_cheaper_unit_for_products_is_named():
    exact, rounded = {"wide": 0, "tf32": 100}, {"wide": 0, "half": 100}
    assert found([one(**exact), one(8, **exact)], one(64, **exact)) is None
    assert "'half'" in found([one(**exact), one(8, **exact)], one(64, **rounded)).sentence


def test_products_in_several_passes_may_lose_none():
    """TF32 three times over is three for each of the reference's products: half of them is not enough."""
    passes = {"wide": 0, "tf32": 300}
    assert found([one(**passes), one(8, **passes)], one(64, **passes)) is None
    assert "operations grow less" in found([one(**passes), one(8, **passes)], one(64, wide=0, tf32=150)).sentence


def test_products_of_padding_may_fall():
    padded = [one(wide=0, tf32=400, void=100), one(8, wide=0, tf32=400, void=100)]
    assert found(padded, one(64, wide=0, tf32=300)) is None
    assert "operations grow less" in found(padded, one(64, wide=0, tf32=150)).sentence


def test_rows_that_are_not_stored_may_fall():
    """As where a tile's rows behind the end are others again."""
    repeated = [one(wide=0, tf32=140, stored=0.7), one(8, wide=0, tf32=140, stored=0.7)]
    assert found(repeated, one(64, wide=0, tf32=100)) is None
    assert "operations grow less" in found(repeated, one(64, wide=0, tf32=80)).sentence


def test_idle_lanes_excuse_no_products():
    """Six in seven lanes are masked, but not in products."""
    idle = [one(wide=0, tf32=100, offered=7.0), one(8, wide=0, tf32=100, offered=7.0)]
    assert "operations grow less" in found(idle, one(64, wide=0, tf32=50)).sentence


def test_idle_lanes_do_not_excuse_operations():
    idle = [one(offered=7.0, issue=9000), one(8, offered=7.0, issue=9000)]
    assert "operations grow less" in found(idle, one(64, wide=50, issue=4500)).sentence
    assert found([one(offered=7.0), one(8, offered=7.0)], one(64, wide=50)) is None


def test_no_arithmetic_at_all_is_less():
    assert "operations grow less" in found(SMALL, one(64, wide=0)).sentence


def test_products_that_fell_away_hide_none_by_a_cheaper_unit():
    diluted = {"wide": 0, "tf32": 100, "half": 2900, "offered": 2.0}
    assert "'half'" in found([one(**diluted), one(8, **diluted)], one(64, wide=0, half=100)).sentence


def test_arithmetic_that_fell_away_hides_none_in_16_bits():
    diluted = {"wide": 100, "narrow": 2900}
    assert "in 16 bits" in found([one(**diluted), one(8, **diluted)], one(64, wide=0, narrow=100)).sentence


def test_places_that_nobody_knows_are_no_fault_of_the_candidate():
    unlike = found(SMALL, one(64, read=1, guessed=["index"]))
    assert not unlike.is_candidates
    assert "whole numbers of index are not known" in unlike.sentence


def test_the_reference_may_read_less_too():
    small, true = forward(one(read=50), read=0.5), forward(one(64, read=5), 6400, read=0.05)
    assert difference([small], true) is None


def test_padding_falls_without_a_difference():
    """Three fifths of the lanes at the reduced sizes were masked."""
    padded = [one(wide=50, offered=1.7), one(8, wide=50, offered=1.7)]
    assert found(padded, one(64, wide=30)) is None
    assert found(padded, one(64, wide=20)) is not None


def test_work_on_whole_numbers_alone_is_seen():
    whole = [one(wide=0), one(8, wide=0)]
    assert found(whole, one(64, wide=0)) is None
    assert "instructions for each byte" in found(whole, one(64, wide=0, issue=300)).sentence


def test_fixed_instructions_of_a_block_get_less():
    whole = [one(wide=0, issue=2000), one(8, wide=0, issue=1000)]
    assert found(whole, one(64, wide=0, issue=400)) is None


def test_what_a_row_needs_once_in_wide_arithmetic_gets_less():
    """A row is summed by a tree: the longer it is, the fewer of its operations are the tree's."""
    rows = [one(scale, wide=wide, narrow=40) for scale, wide in ((1, 110), (8, 85), (64, 66))]
    assert found(rows[:2], rows[2], flops=6400) is None
    assert "computes 38% in 16 bits" in found([rows[1], one(16, wide=85, narrow=40)], rows[2], flops=6400).sentence


def test_arithmetic_that_becomes_narrow_is_seen():
    rows = [one(1, wide=110, narrow=40), one(8, wide=85, narrow=40)]
    assert "computes 80% in 16 bits" in found(rows, one(64, wide=25, narrow=100)).sentence


def test_another_sequence_is_named():
    small, true = forward(one()), forward(one(64), names=("k", "j"))
    assert "kernel or op 2 is j at the true size and nothing" in difference([small], true).sentence


@pytest.mark.parametrize(
    ("followed", "text"),
    [
        (one(), None), (one(wide=105), None), (one(wide=50), "operations (wide) differ by 50%"),
        (one(read=50), "bytes of x that are read differ by 50%"), (one(grid=(9, 1, 1)), "another grid"),
    ],
)  # fmt: skip
def test_what_was_verified_must_be_repeated_without_data(followed, text):
    reason = not_repeated(forward(one()), forward(followed))
    assert (reason is None) if text is None else (text in reason)
