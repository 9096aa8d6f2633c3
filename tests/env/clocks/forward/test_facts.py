# SPDX-License-Identifier: Apache-2.0
"""Facts of a profile agree with NVIDIA's assembler and disassembler, on fifty kernels."""

import json
from pathlib import Path

import pytest

from tests.env.executor.test_programs import run

ROOT = Path(__file__).parents[4]


def rows(folder, what):
    path = f"{ROOT}:{ROOT / 'benchmarks'}"
    told = run(folder, "-m", "tests.env.clocks.forward.fifty", what, PYTHONPATH=path, OMP_NUM_THREADS="1")
    return {row["name"]: row for row in map(json.loads, told.splitlines())}


pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    found = rows(tmp_path_factory.mktemp("compiled"), "compiled")
    assert len(found) >= 50
    return found


@pytest.mark.parametrize("ours, theirs", [
    ("registers", "ptxas_registers"), ("registers", "sass_registers"), ("spills", "ptxas_spills"),
])  # fmt: skip
def test_registers_and_spills_are_those_of_the_assembler(compiled, ours, theirs):
    assert {name: row[ours] for name, row in compiled.items()} == {name: row[theirs] for name, row in compiled.items()}


def test_what_spills_stores_to_local_memory(compiled):
    assert all(bool(row["spills"]) <= bool(row["sass_local"]) for row in compiled.values())


def test_all_shared_memory_is_allocated_at_the_launch(compiled):
    """The assembler knows only what is allocated in the code: nothing; the launch asks for the compiler's number."""
    assert {row["sass_shared"] for row in compiled.values()} <= {0, 1024}


def test_tensor_cores_are_used_if_the_machine_code_does(compiled, tmp_path):
    counted = rows(tmp_path, "counted")
    by_count, by_code = (
        {name: bool(row[key]) for name, row in some.items()}
        for some, key in ((counted, "products"), (compiled, "sass_products"))
    )
    assert by_count == by_code
    assert sum(by_code.values()) >= 8


def test_the_limit_follows_from_registers_and_shared_memory(compiled):
    for row in compiled.values():
        by_registers = 65536 // (-(-row["registers"] * 32 // 256) * 256) // (-(-row["warps"] // 4) * 4)
        by_shared = (228 << 10) // (-(-(row["shared"] + 1024) // 128) * 128)
        most = min(32, 64 // row["warps"])
        assert row["blocks_per_sm"] == min(by_registers, by_shared, most)
        limits = {"registers": by_registers, "shared memory": by_shared, "warps and blocks": most}
        assert limits[row["limit"]] == row["blocks_per_sm"]
