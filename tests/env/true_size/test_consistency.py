# SPDX-License-Identifier: Apache-2.0
"""What counts as doing something else at the true size, by the executing process's account."""

from dataclasses import replace

import pytest

from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.true_size.consistency import Counted, difference, functions, not_repeated

UNITS = {"half": 0, "tf32": 0, "fma": 0, "narrow": 0, "wide": 0, "issue": 1000, "integer": 300, "special": 0}


def one(
    scale=1, *, read=100, grid=(8, 1, 1), types=None, guessed=(), offered=1.0, lanes=0.0, void=0, stored=1.0, **units
):
    done = {unit: scale * number for unit, number in {**UNITS, "wide": 100, **units}.items()}
    size, useful = 100 * scale, 200 * scale
    areas = {"x": [size, scale * read, scale * read, 0, 0], "o": [size, 0, 0, size, size]}
    return {
        "kernel": "k", "grid": list(grid), "operations": done, "useful": useful, "offered": round(useful * offered),
        "lanes": round(useful * max(lanes, offered)),
        "types": types or {"x": "*fp32", "n": "i32"}, "areas": areas, "guessed": list(guessed),
        "voids": {"half": 0, "tf32": scale * void}, "stores": [round(100 * scale * stored), 100 * scale],
    }  # fmt: skip


def forward(tally, flops=100, read=1.0, names=("k",)):
    return Counted([TraceEvent("launch", name) for name in names], [tally], flops, read)


def found(verified, true):
    sizes = [forward(item, flops=100 * 8**place) for place, item in enumerate(verified)]
    return difference(sizes, sizes[-1], forward(true, 6400))


def sizes(**of):
    """A launch at two reduced sizes."""
    return [one(**of), one(8, **of)]


SMALL = sizes()
EXACT = sizes(wide=0, tf32=100)
PASSES = sizes(wide=0, tf32=300)
PADDED = sizes(wide=0, tf32=400, void=100)
UNSTORED = sizes(wide=0, tf32=140, stored=0.7)
IDLE = sizes(offered=7.0)
MASKED = sizes(wide=50, offered=1.7)
WHOLE = sizes(wide=0)
ROWS = [one(wide=110, narrow=40), one(8, wide=85, narrow=40)]
LESS = "the operations grow less than the reference's"
CASES = {
    "the same for more": (SMALL, one(64), None),
    "a wider number and another grid": (SMALL, one(64, types={"x": "*fp32", "n": "i64"}, grid=(900, 1, 1)), None),
    "another type": (SMALL, one(64, types={"x": "*fp16", "n": "i32"}), "has x as *fp16 at the true size and as *fp32"),
    "fewer loads": (SMALL, one(64, read=1), "loads 1% of x at the true size and 100% at a reduced one"),
    "half of the operations": (SMALL, one(64, wide=50), LESS),
    "no arithmetic at all": (SMALL, one(64, wide=0), LESS),
    "operations on a cheaper unit": (SMALL, one(64, wide=10, half=90), "by the unit 'half' or a cheaper one"),
    "operations in 16 bits": (SMALL, one(64, wide=60, narrow=40), "computes 40% in 16 bits"),
    "products": (EXACT, one(64, wide=0, tf32=100), None),
    "products on a cheaper unit": (EXACT, one(64, wide=0, half=100), "'half'"),
    # TF32 three times over is three for each of the reference's products: half of them is not enough.
    "products in several passes": (PASSES, one(64, wide=0, tf32=300), None),
    "half of the passes": (PASSES, one(64, wide=0, tf32=150), LESS),
    "products of padding fell": (PADDED, one(64, wide=0, tf32=300), None),
    "more than those of padding fell": (PADDED, one(64, wide=0, tf32=150), LESS),
    # As where a tile's rows behind the end are others again.
    "rows that are not stored fell": (UNSTORED, one(64, wide=0, tf32=100), None),
    "more than the rows that are not stored fell": (UNSTORED, one(64, wide=0, tf32=80), LESS),
    # Six in seven lanes are masked, but not in products, and not where operations determine the time.
    "lanes that were idle": (IDLE, one(64, wide=50), None),
    "idle lanes and half of the products": (sizes(wide=0, tf32=100, offered=7.0), one(64, wide=0, tf32=50), LESS),
    "idle lanes of many operations": (sizes(offered=7.0, issue=9000), one(64, wide=50, issue=4500), LESS),
    "products that fell away and a cheaper unit": (
        sizes(wide=0, tf32=100, half=2900, offered=2.0), one(64, wide=0, half=100), "'half'"
    ),
    "arithmetic that fell away and 16 bits": (sizes(wide=100, narrow=2900), one(64, wide=0, narrow=100), "in 16 bits"),
    # Three fifths of the lanes at the reduced sizes were masked.
    "padding fell": (MASKED, one(64, wide=30), None),
    "more than padding fell": (MASKED, one(64, wide=20), LESS),
    "work on whole numbers": (WHOLE, one(64, wide=0), None),
    "less work on whole numbers": (WHOLE, one(64, wide=0, issue=300), "instructions for each byte"),
    "less work on whole numbers beside one operation": (
        sizes(wide=1), one(64, wide=1, issue=300), "instructions for each byte"
    ),
    "larger tiles": (SMALL, one(64, issue=300), None),
    "fixed instructions of a block fell": (
        [one(wide=0, issue=2000), one(8, wide=0, issue=1000)], one(64, wide=0, issue=400), None
    ),
    # A row is summed by a tree: the longer it is, the fewer of its operations are the tree's.
    "what a row needs once in wide arithmetic fell": (ROWS, one(64, wide=66, narrow=40), None),
    "wide arithmetic fell further than its trend": (
        [ROWS[1], one(16, wide=85, narrow=40)], one(64, wide=66, narrow=40), "computes 38% in 16 bits"
    ),
    "arithmetic became narrow": (ROWS, one(64, wide=25, narrow=100), "computes 80% in 16 bits"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_only_less_than_was_verified_is_a_difference(name):
    verified, true, text = CASES[name]
    unlike = found(verified, true)
    assert (unlike is None) is (text is None)
    if unlike is not None:
        assert text in unlike.sentence
        assert unlike.is_candidates


def test_places_that_nobody_knows_are_no_fault_of_the_candidate():
    unlike = found(SMALL, one(64, read=1, guessed=["index"]))
    assert not unlike.is_candidates
    assert "whole numbers of index are not known" in unlike.sentence


def test_the_reference_may_read_less_too():
    small, true = forward(one(read=50), read=0.5), forward(one(64, read=5), 6400, read=0.05)
    assert difference([small], small, true) is None


@pytest.mark.parametrize(("verified", "true", "text"), [
    (one(special=200), one(64, special=200), None), (one(special=200), one(64, special=20), "compute 10% as many"),
    # Most lanes of the reduced size were masked.
    (one(special=200, offered=4.0), one(64, special=60), None),
    # A block of the reduced size is far longer than its row, so that whole instructions were idle.
    (one(special=640, lanes=3.2), one(64, special=200), None),
    (one(special=640, lanes=3.2), one(64, special=20), "compute 10% as many"),
])  # fmt: skip
def test_special_functions_grow_with_the_references(verified, true, text):
    small = replace(forward(verified), functions=100)
    unlike = difference([small], small, replace(forward(true, 6400), functions=6400))
    assert (unlike is None) if text is None else (text in unlike.sentence)
    assert difference([forward(verified)], forward(verified), forward(true, 6400)) is None


def test_special_functions_of_a_row_weigh_less_in_longer_rows():
    """An online softmax rescales each block of a row once; half of what that leaves is too few."""
    first, last = (
        replace(forward(one(scale, special=special)), functions=100 * scale) for scale, special in ((1, 400), (8, 250))
    )
    large, few = (replace(forward(one(64, special=special), 6400), functions=6400) for special in (100, 50))
    assert difference([first, last], last, large) is None
    assert difference([last], last, large) is not None
    assert "compute 20% as many" in difference([first, last], last, few).sentence


def test_special_functions_compare_without_data():
    """Branches of libdevice hang on values."""
    verified, again = (replace(forward(one(special=special)), functions=100) for special in (640, 200))
    assert difference([verified], again, replace(forward(one(64, special=120), 6400), functions=6400)) is None


def test_squares_are_no_special_functions():
    """A norm takes one root of each row: with longer rows there are fewer for each square."""
    events = [TraceEvent("op", "aten::pow.Tensor_Scalar", bytes=800), TraceEvent("op", "aten::rsqrt", bytes=2)]
    assert functions(events) == 2


@pytest.mark.parametrize(("reduced", "true", "is_unlike", "is_candidates"), [
    ((100, 100, 100), (6400, 6400, 6400), False, False), ((100, 100, 100), (400, 400, 6400), True, True),
    # All of the tensors are given, and a part is moved: a selection of rows.
    ((100, 100, 100), (400, 6400, 6400), True, True), ((50, 50, 100), (3200, 3200, 6400), False, False),
    # One row, or a part that shrinks: neither can be told from the other.
    ((10, 10, 100), (10, 10, 6400), True, False), ((300, 100, 100), (19200, 6400, 6400), False, False),
    ((0, 0, 0), (0, 0, 0), False, False),
])  # fmt: skip
def test_an_op_takes_as_much_of_its_tensors_as_before(reduced, true, is_unlike, is_candidates):
    """Moved and given bytes, and those of the storages: a slice of an input was a whole product by its name."""
    again, now = (
        Counted([TraceEvent("op", "aten::mm", bytes=moved, given=given, held=held)], [], 100, 1.0)
        for moved, given, held in (reduced, true)
    )
    unlike = difference([again], again, now)
    assert (unlike is not None) is is_unlike
    assert (unlike is not None and unlike.is_candidates) is is_candidates


@pytest.mark.parametrize(("parts", "is_unlike"), [
    (((10, 100), (10, 400), (10, 6400)), False), (((10, 100), (20, 400), (80, 6400)), False),
    # Less than at either size; a share that stayed and falls; a large share, which leaves out too much.
    (((10, 100), (10, 400), (2, 6400)), True), (((10, 100), (40, 400), (10, 6400)), True),
    (((100, 100), (200, 400), (800, 6400)), True), (((10, 400), (10, 400), (10, 6400)), True),
])  # fmt: skip
def test_one_row_of_a_tensor_that_grows_stays_one_row(parts, is_unlike):
    small, large, true = (
        Counted([TraceEvent("op", "aten::relu", bytes=2 * given, given=given, held=held)], [], 100, 1.0)
        for given, held in parts
    )
    assert (difference([small, large], large, true) is not None) is is_unlike


def test_another_sequence_is_named():
    small, true = forward(one()), forward(one(64), names=("k", "j"))
    assert "kernel or op 2 is j at the true size and nothing" in difference([small], small, true).sentence


@pytest.mark.parametrize(
    ("followed", "text"),
    [
        (one(special=100), None), (one(special=100, wide=105), None),
        (one(special=100, wide=50), "operations (wide) differ by 50%"),
        (one(special=100, read=50), "bytes of x that are read differ by 50%"),
        (one(special=100, grid=(9, 1, 1)), "another grid"),
        # Which way a function of libdevice takes depends on its argument.
        (one(special=80), None), (one(special=10), "operations (special) differ by 90%"),
    ],
)  # fmt: skip
def test_what_was_verified_must_be_repeated_without_data(followed, text):
    reason = not_repeated(forward(one(special=100)), forward(followed))
    assert (reason is None) if text is None else (text in reason)
