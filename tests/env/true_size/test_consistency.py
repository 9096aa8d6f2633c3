# SPDX-License-Identifier: Apache-2.0
"""What counts as doing something else at the true size, and what does not."""

import pytest

from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.true_size.consistency import Followed, Verified, difference


def event(name="kernel", flops=0):
    return TraceEvent("launch", name, (1, 1, 1), 0, flops)


def found(verified, true, flops, *, known=(), seen=(), small=(), large=()):
    forwards = [Verified([event(flops=ours)], theirs) for ours, theirs in verified]
    followed = Followed([event(flops=true)], large, seen)
    return difference(forwards, known, Followed([], small), followed, flops)


def test_the_same_is_no_difference():
    share = [{"load x": 1.0, "store o": 0.5}]
    same = {"known": {(1, 2, 4)}, "seen": {(1, 2, 4)}, "small": share, "large": share}
    assert found([(100, 100), (800, 800)], 64000, 64000, **same) is None


def test_another_sequence_is_named():
    verified = [Verified([event("a"), event("b")], 1)]
    followed = Followed([event("a"), event("c"), event("b")], [])
    text = difference(verified, (), Followed([], []), followed, 1)
    assert text == "kernel or op 2 is c at the true size and b where the output was verified"


def test_an_instruction_that_never_ran_is_named_by_its_line():
    assert "line 7" in found([(1, 1)], 1, 1, known={(1, 2, 4)}, seen={(1, 2, 4), (1, 7, 8), (1, 9, 2)})


@pytest.mark.parametrize(("share", "differs"), [(1.0, False), (0.96, False), (0.9, True), (None, True)])
def test_shares_may_not_fall(share, differs):
    now = [{} if share is None else {"store o": share}]
    text = found([(1, 1)], 1, 1, small=[{"store o": 1.0}], large=now)
    assert (text is not None) is differs and (text is None or "of o" in text)


@pytest.mark.parametrize(
    ("verified", "true", "differs"),
    [
        ([(1600, 100), (1600, 800)], 64000, False),  # padding, no more of it at the true size
        ([(100, 100), (800, 800)], 32000, True),  # half of the work is left out
        ([(100, 100), (800, 800)], 60000, False),
        ([(25, 100), (100, 800)], 1600, False),  # two dimensions where the reference takes three
        ([(25, 100), (100, 800)], 100, True),
        ([(100, 100), (0, 800)], 0, False),  # nothing but moves
        ([(50, 100)], 32000, False),  # half of the work at any size
        ([(50, 100)], 16000, True),
    ],
)
def test_operations_grow_as_the_references_do(verified, true, differs):
    assert (found(verified, true, 64000) is not None) is differs
