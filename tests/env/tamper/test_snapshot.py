# SPDX-License-Identifier: Apache-2.0
"""What a snapshot finds of functions that are watched."""

import pytest

from verl_kernel.env.tamper.snapshot import Snapshot
from verl_kernel.env.tamper.tripwire import program_asks


def found(monkeypatch, part, value):
    snapshot = Snapshot()
    monkeypatch.setattr(program_asks, part, value)
    return [change for change in snapshot.changes() if "program_asks" in change]


@pytest.mark.parametrize(("part", "value"), [("__code__", (lambda depth=2: False).__code__), ("__defaults__", (3,))])
def test_another_code_or_default_is_found(monkeypatch, part, value):
    assert found(monkeypatch, part, value) == ["the code of program_asks was replaced"]


@pytest.mark.parametrize(("part", "value"), [("__annotations__", {}), ("__doc__", "Another text."), ("noted", True)])
def test_other_parts_of_a_function_may_change(monkeypatch, part, value):
    if part == "noted":
        monkeypatch.setattr(program_asks, part, None, raising=False)
    assert found(monkeypatch, part, value) == []
