# SPDX-License-Identifier: Apache-2.0
"""What a runner says is read with suspicion: malformed parts are errors, whole ones come back as they were."""

import json

import pytest
import torch

from verl_kernel.env.clocks.cuda.rounds import _read_forms, _read_ms
from verl_kernel.env.ipc.tensor_facts import read_facts, tensor_facts

FACTS = json.loads(json.dumps([tensor_facts(torch.ones(2, 3)), tensor_facts(torch.ones(()))]))


def test_facts_come_back_as_they_were_said():
    assert read_facts(FACTS) == FACTS
    assert read_facts([{**FACTS[0], "more": 1}]) == FACTS[:1]


@pytest.mark.parametrize("value", [None, "xs", 3, {}, [3], [None], [FACTS], [{}], [{"dtype": "float32"}]])
def test_other_facts_are_refused(value):
    with pytest.raises((ValueError, LookupError)):
        read_facts(value)


@pytest.mark.parametrize("value", [None, "xs", {}, [{}], [{}, 3], [{}, "xs"]])
def test_two_forms_are_two_objects(value):
    with pytest.raises((ValueError, LookupError)):
        _read_forms(value, 2)


def test_more_forms_than_asked_for_are_ignored():
    assert _read_forms([{"output": 1}, {"output": 2}, 3], 2) == [{"output": 1}, {"output": 2}]


def test_milliseconds_are_a_number():
    assert _read_ms(0.25) == 0.25
    for value in (None, "1", [1.0], {}):
        with pytest.raises(ValueError, match="number"):
            _read_ms(value)
