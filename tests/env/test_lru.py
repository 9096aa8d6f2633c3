# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.lru import LRUCache


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef"))), st.integers(1, 4))
def test_it_keeps_what_was_used_last(steps, capacity):
    recent: LRUCache[int] = LRUCache(capacity)
    order: list[str] = []  # oracle: keys by age of their last use
    for number, (write, key) in enumerate(steps):
        if write:
            recent.put(key, number)
            order = [*(k for k in order if k != key), key][-capacity:]
        else:
            assert (recent.get(key) is not None) == (key in order)
            order = [*(k for k in order if k != key), key] if key in order else order
    assert len(recent) == len(order)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9))), st.integers(0, 20))
def test_it_is_bounded_in_bytes_but_for_the_latest(items, most):
    recent: LRUCache[str] = LRUCache(100, most)
    order: dict[str, int] = {}  # oracle: sizes by age
    for key, size in items:
        recent.put(key, key, size)
        order.pop(key, None)
        order[key] = size
        while len(order) > 1 and sum(order.values()) > most:
            del order[next(iter(order))]
    assert len(recent) == len(order)
    assert all(recent.get(key) == key for key in order)
    recent.clear()
    assert len(recent) == 0
