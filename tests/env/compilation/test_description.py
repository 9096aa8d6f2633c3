# SPDX-License-Identifier: Apache-2.0
"""Descriptions of launches: what makes two of them one kernel, and that a claim is read with care."""

from dataclasses import replace

import pytest

from verl_kernel.env.compilation.description import Description, Function, LaunchDescription, function_texts

SOURCE = "\ndef helper(a):\n    return a\n\n\ndef k(x, function):\n    return helper(x)\n"
HELPER = Function("helper", 2, False, {}, {}, {}, {})
KERNEL = Function("k", 6, False, {"x": "*fp32"}, {}, {}, {"helper": {"function": 0}, "function": 7})
LAUNCH = LaunchDescription(1, [{"tensor": {"dtype": "float32", "aligned": True}}], {}, {"num_warps": 4})
GOOD = Description([HELPER, KERNEL], [LAUNCH]).to_json()
FUNCTION, LAUNCHED = GOOD["functions"][0], GOOD["launches"][0]


@pytest.mark.parametrize(("functions", "uses"), [
    ([HELPER, KERNEL, replace(KERNEL, name="unused", uses={})], {}),
    ([replace(HELPER, uses={"k": {"function": 1}}), KERNEL], {"k": {"function": 0}}),  # they call each other
])  # fmt: skip
def test_a_unit_numbers_what_its_launch_reaches(functions, uses):
    unit = Description(functions, [LAUNCH]).unit(LAUNCH)
    assert [function.name for function in unit.functions] == ["k", "helper"]
    assert unit.launch.function == 0
    assert unit.functions[0].uses == {"helper": {"function": 1}, "function": 7}
    assert unit.functions[1].uses == uses


def test_a_key_depends_on_texts_and_not_on_where_they_stand():
    texts = function_texts(SOURCE)
    here = Description([HELPER, KERNEL], [LAUNCH]).unit(LAUNCH)
    there = Description([replace(HELPER, line=3), replace(KERNEL, line=7)], [LAUNCH]).unit(LAUNCH)
    assert here.key(texts, "3.7") == there.key(function_texts("\n" + SOURCE), "3.7")
    assert here.digest() != there.digest()
    assert here.key(texts, "3.7") != here.key(texts, "3.8")
    changed = function_texts(SOURCE.replace("return a", "return a + 1"))
    assert here.key(texts, "3.7") != here.key(changed, "3.7")
    warps = replace(LAUNCH, options={"num_warps": 8})
    assert Description([HELPER, KERNEL], [warps]).unit(warps).key(texts, "3.7") != here.key(texts, "3.7")
    with pytest.raises(LookupError):  # a function that the source does not hold
        Description([replace(HELPER, line=40), KERNEL], [LAUNCH]).unit(LAUNCH).key(texts, "3.7")


def test_lines_are_counted_as_python_counts_them():
    source = "a = 1\x0c\r\ndef k():\r    x = '\u2028'\n    return 1"
    assert function_texts(source) == {("k", 2): "def k():\n    x = '\u2028'\n    return 1"}


def test_descriptions_travel_as_json():
    description = Description([HELPER, KERNEL], [LAUNCH], ["0123"])
    assert Description.from_json(description.to_json()) == description


@pytest.mark.parametrize("claim", [
    {}, 7, {**GOOD, "functions": 7}, {**GOOD, "functions": [{}]}, {**GOOD, "functions": [{**FUNCTION, "line": "2"}]},
    {**GOOD, "functions": [{**FUNCTION, "marks": {"x": 1}}]}, {**GOOD, "functions": GOOD["functions"] * 600},
    {**GOOD, "launches": [{**LAUNCHED, "function": "1"}]}, {**GOOD, "launches": [{**LAUNCHED, "speedup": 9}]},
])  # fmt: skip
def test_a_claim_is_checked(claim):
    with pytest.raises((ValueError, TypeError, LookupError)):
        Description.from_json(claim)


@pytest.mark.parametrize("number", [-1, 2, "k", None, True])
def test_a_reference_to_nothing_is_refused(number):
    launch = replace(LAUNCH, positional=[{"function": number}])
    with pytest.raises(ValueError, match="does not hold"):
        Description([HELPER, KERNEL], [launch]).unit(launch)
