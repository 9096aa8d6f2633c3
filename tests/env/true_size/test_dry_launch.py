# SPDX-License-Identifier: Apache-2.0
"""Launches without data, counted against what they do by hand; the kernels are in dry_cases.py."""

from pathlib import Path

import pytest

from tests.env.devices.cases import run_cases
from verl_kernel.env.backends import resolve_device

CASES = Path(__file__).with_name("dry_cases.py")
N = 4096 * 393216


@pytest.fixture(scope="module")
def cases():
    return run_cases(CASES, resolve_device("cpu").zygote_env())


@pytest.mark.parametrize(
    ("case", "moved", "flops"),
    [
        ("relu", 2 * 4 * N, N),
        ("add, odd", 3 * 4 * (N + 77), N + 77 + 947),  # the last block's masked lanes are added, too
        ("softmax, loop", 4 * 4 * N, None),
        ("softmax, block", 4 * 4 * 4096 * 5000, None),
        ("matmul", 4 * (2 * 32 * 4096 * 4096 + 4096 * 4096), 2 * 4096**3),
        ("matmul, long", 4 * (2 * 2 * 256 * 524288 + 256 * 256), 2 * 256 * 256 * 524288),
        ("tuned", 4 * (2 * 64 * 4096 * 4096 + 4096 * 4096), 2 * 4096**3),
        ("persistent", 2 * 4 * 2**28, 2**28),
        ("added", 4 * 2**28 + 2 * 4 * 2**18, 2**28),
        ("stepped", 2 * 4 * 2048 * 65536, 0),
        ("ragged", 4 * 512 * 65536 + 512 * (2 * 8 + 4), 512 * (65536 + 1024)),
        ("gathered", 4 * 2 * 2**16 * 128 + 8 * 2**16, 0),
    ],
)
def test_counts_agree_with_what_a_kernel_does(cases, case, moved, flops):
    (event,) = cases[case]["events"]
    assert cases[case]["error"] is None
    assert event["bytes"] == pytest.approx(moved, rel=0.01)
    if flops is not None:
        assert event["flops"] == pytest.approx(flops, rel=0.01)


@pytest.mark.parametrize(
    ("case", "device", "l2", "repeated", "blocks"),
    [
        ("relu", 8 * N, 8 * N, 0, None),
        ("softmax, loop", 8 * N, 16 * N, 8 * N, 4096),
        ("matmul", 3 * 4 * 4096**2, 4 * (2 * 32 + 1) * 4096**2, 0, 1024),
        ("matmul, long", 4 * (2 * 256 * 524288 + 256**2), 4 * (2 * 2 * 256 * 524288 + 256**2), 0, 4),
        ("persistent", 2 * 4 * 2**28, 2 * 4 * 2**28, 0, 132),
        ("stepped", 2 * 4 * 2048 * 65536, 2 * 4 * 2048 * 65536, 0, 2048),
    ],
)
def test_the_machine_model_sees_what_the_whole_launch_would_show(cases, case, device, l2, repeated, blocks):
    (event,) = cases[case]["events"]
    steps = event["steps"]
    assert sum(step["bytes"] for step in steps) == pytest.approx(device, rel=0.01)
    assert sum(step["l2_bytes"] for step in steps) == pytest.approx(l2, rel=0.01)
    assert sum(step["repeated_bytes"] for step in steps) == pytest.approx(repeated, rel=0.01)
    assert blocks is None or steps[0]["blocks"] == blocks
    products = sum(step["flops"] for step in steps)
    assert sum(step["instructions"] for step in steps) + products == pytest.approx(event["flops"], rel=0.01)


def test_the_best_configuration_is_the_one_that_is_charged(cases):
    """Tiles of 32 ask too much of L2; those of 64 and 128 are bound by arithmetic alike, and the first one is taken."""
    (event,) = cases["tuned"]["events"]
    assert event["grid"] == [64 * 64, 1, 1]


def test_shares_of_tensors_count_known_places_only(cases):
    assert cases["matmul"]["coverage"] == [{"load a": 1.0, "load b": 1.0, "store o": 1.0}]
    assert cases["gathered"]["coverage"] == [{"load index": 1.0, "store o": 1.0}]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("narrow", "kernel narrow: a load lies outside the tensors of the launch"),
        ("narrow", "overflow 32 bits"),
        ("branching", "a kernel branches on a value that it has loaded"),
        ("item", "reads the value of a tensor on the host"),
        ("mask", "depends on values"),
        ("host reads what a kernel wrote", "Tensor.tolist reads a tensor on the host"),
    ],
)
def test_what_takes_data_is_refused_with_the_reason(cases, case, text):
    assert text in cases[case]["error"]
    assert cases[case]["reasons"] == [cases[case]["error"]]
