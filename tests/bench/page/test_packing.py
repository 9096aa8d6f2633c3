# SPDX-License-Identifier: Apache-2.0
import base64
import gzip
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.bench.page.texts import cut_middle, packed


@given(st.text(st.characters()))
def test_packed_data_holds_no_markup_and_comes_back(text):
    letters = packed({"text": text})
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", letters)
    assert json.loads(gzip.decompress(base64.b64decode(letters))) == {"text": text}


def test_packing_the_same_data_gives_the_same_letters():
    assert packed([1, "a"]) == packed([1, "a"])


@given(st.text(), st.integers(1, 50))
def test_a_cut_text_keeps_both_ends_and_says_how_much_is_gone(text, limit):
    shown, left_out = cut_middle(text, limit)
    assert left_out == max(0, len(text) - limit)
    if left_out:
        head, _, tail = shown.partition(f"\n[... {left_out:,} characters left out ...]\n")
        assert len(head) + len(tail) == limit
        assert text.startswith(head)
        assert text.endswith(tail)
    else:
        assert shown == text
