# SPDX-License-Identifier: Apache-2.0
"""What stores are over several forwards on other inputs."""

import numpy as np
import pytest

from tests.env.emulator.ptx import entry
from verl_kernel.env.emulator.copy_stores import Follow, Seen, place_of
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.execution.store_kinds import StoreClassifier

PROGRAM = parse(entry(
    "ld.param.u64 %o, [p0]; ld.global.f32 %f, [%o]; add.f32 %f, %f, %f; st.global.f32 [%o], %f; ret;", 1,
    ".reg .b64 %o; .reg .f32 %f;",
))  # fmt: skip
STORE = next(number for number, item in enumerate(PROGRAM.instructions) if item.root == "st")
OTHER, LOADED = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) + 1.0
AT_AN_END = ("variation", "loaded")
"""What was loaded is stored where that may be chance."""
FAR = ("variation", "computed")


def kind(*forwards, shapes=(b"",)):
    """The kind of the store after forwards that stored this: `computed`, `loaded` or a number everywhere."""
    stores = StoreClassifier()
    for stored in forwards:
        shows, stored = stored if isinstance(stored, tuple) else ("all", stored)
        stores.begin(shows)
        stores.next(np.random.default_rng(0))
        values = {"computed": OTHER, "loaded": LOADED}.get(stored)
        seen, values = Seen(), np.full(8, stored, np.float32) if values is None else values
        for shape in shapes:
            seen.note(values.view(np.uint8).reshape(8, 4), ["load"] if stored == "loaded" else [], False, shape)
        stores.end("code", Follow((), np.random.default_rng(0), {place_of(PROGRAM.instructions[STORE]): seen}))
    return stores.kinds("code", PROGRAM)[STORE]


@pytest.mark.parametrize(("forwards", "wanted"), [
    (("computed",), "computes"),
    (("loaded", "loaded"), "moves"),
    (("loaded", "computed"), "computes"),
    (("computed", "loaded"), "moves"),
    (("computed", 0.0, 0.0), "computes"),
    ((0.0, 0.0), "constant"),
    ((0.0, 1.0, 1.0), "computes"),
    ((0.0, 0.0, "loaded"), "moves"),
    (("computed", AT_AN_END), "computes"),
    (("loaded", AT_AN_END), "moves"),
    ((1.0, 1.0, ("variation", 0.0)), "computes"),
    (("loaded", ("variation", "computed")), "moves"),
    ((1.0, 1.0, AT_AN_END), "computes"),
    (("computed", FAR, "loaded"), "computes"),
    (("computed", "loaded", FAR), "computes"),
    (("loaded", FAR, "loaded"), "moves"),
    (("computed", AT_AN_END, "loaded"), "moves"),
    (("computed", ("variation", 1.0), "loaded"), "computes"),
])  # fmt: skip
def test_the_latest_forward_that_says_something_counts(forwards, wanted):
    assert kind(*forwards) == wanted


def test_one_value_here_and_there_computes():
    """As minus infinity does where a mask's bits forbid a word; bounds cut off the last block."""
    assert kind(7.0, 7.0, shapes=(b"whole", b"end", b"")) == "constant"
    assert kind(7.0, 7.0, shapes=(b"a", b"b", b"c", b"d")) == "computes"
