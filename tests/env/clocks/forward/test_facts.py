# SPDX-License-Identifier: Apache-2.0
"""Facts of a profile agree with NVIDIA's assembler and disassembler, on fifty kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def rows(folder, what):
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = f"{ROOT}:{ROOT / 'benchmarks'}"
    environment = {**kept, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.env.clocks.forward.fifty", what]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["name"]: row for row in found}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    found = rows(tmp_path_factory.mktemp("compiled"), "compiled")
    assert len(found) >= 50
    return found


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("counted"), "counted")


@pytest.mark.parametrize("ours, theirs", [("registers", "ptxas_registers"), ("registers", "sass_registers")])
def test_registers_are_those_of_the_assembler(compiled, ours, theirs):
    assert {name: row[ours] for name, row in compiled.items()} == {name: row[theirs] for name, row in compiled.items()}


def test_spills_are_those_of_the_assembler(compiled):
    assert {name: row["spills"] for name, row in compiled.items()} == {
        name: row["ptxas_spills"] for name, row in compiled.items()
    }
    assert all(bool(row["spills"]) <= bool(row["sass_local"]) for row in compiled.values())


def test_all_shared_memory_is_allocated_at_the_launch(compiled):
    """The assembler knows only what is allocated in the code: nothing; the launch asks for the compiler's number."""
    assert {row["sass_shared"] for row in compiled.values()} <= {0, 1024}


def test_tensor_cores_are_used_if_the_machine_code_does(compiled, counted):
    assert counted.keys() == compiled.keys()
    assert {name for name, row in counted.items() if row["products"]} == {
        name for name, row in compiled.items() if row["sass_products"]
    }
    assert sum(bool(row["sass_products"]) for row in compiled.values()) >= 8


def test_the_limit_follows_from_registers_and_shared_memory(compiled):
    for row in compiled.values():
        by_registers = 65536 // (-(-row["registers"] * 32 // 256) * 256) // (-(-row["warps"] // 4) * 4)
        by_shared = (228 << 10) // (-(-(row["shared"] + 1024) // 128) * 128)
        most = min(32, 64 // row["warps"])
        assert row["blocks_per_sm"] == min(by_registers, by_shared, most)
        limits = {"registers": by_registers, "shared memory": by_shared, "warps and blocks": most}
        assert limits[row["limit"]] == row["blocks_per_sm"]
