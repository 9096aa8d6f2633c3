# SPDX-License-Identifier: Apache-2.0
"""What Triton writes for GPUs from sm_80 to sm_90 is executed, or stands in the table of what is not."""

import json

import pytest

from tests.env.emulator.ptx import entry
from tests.env.processes import printed
from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.lowering.opcodes import NOT_EXECUTED

PARTS, OTHER_PARTS = range(0, 12, 3), 36
pytestmark = pytest.mark.slow


def swept(*numbers):
    return json.loads(printed("-m", "tests.env.emulator.sweep", *numbers).splitlines()[-1])


@pytest.mark.parametrize("part", [
    pytest.param((17, 400, 6), id="few"),
    *(pytest.param((part, 12, 60), marks=pytest.mark.exhaustive, id=f"part {part}") for part in PARTS),
])  # fmt: skip
def test_all_is_known_of_what_kernels_are_compiled_to(part):
    found = swept(0, *part)
    assert found["ended"] == {}
    assert found["unknown"] == {}
    assert sum(found["refused"].values()) < found["cases"] / 2
    assert len(found["opcodes"]) > 60


@pytest.mark.exhaustive
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_the_table_has_what_is_not_known_of_other_gpus(capability):
    found = swept(capability, capability % 7, OTHER_PARTS, 40)
    assert found["ended"] == {}
    sentences = {opcode: sentence for opcode, (sentence, _) in found["unknown"].items()}
    assert {opcode: said for opcode, said in sentences.items() if not said.endswith(tuple(NOT_EXECUTED.values()))} == {}
    assert capability == 90 or not sentences


@pytest.mark.parametrize("begin", NOT_EXECUTED)
def test_the_table_is_what_a_user_reads(begin):
    with pytest.raises(NotKnown) as caught:
        Kernel(entry(f"{begin}.more 0; ret;"), 1, 0)
    assert str(caught.value) == f"the emulator does not know `{begin}.more 0`: {NOT_EXECUTED[begin]}"


def test_a_copy_of_a_tile_is_refused_with_its_reason():
    """Its address is a description and places, as no other instruction has."""
    copy = "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%w1, {%r2, %r2}], [%r3]"
    with pytest.raises(NotKnown, match="TMA"):
        Kernel(entry(f"{copy}; ret;", 0, ".reg .b32 %r<4>; .reg .b64 %w<2>;"), 1, 0)
