# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that runs Triton's own tests of its language through the emulator (`make test-triton`).

`EMULATOR_CASES=3` keeps so many cases of each test function, the same ones each time. `EMULATOR_WATCH=1` looks for
races: Triton's own code must have none, but that a scalar is loaded in each warp and stored in one.
"""

import hashlib
import os

import pytest
import torch

from verl_kernel.env.emulator import driver
from verl_kernel.env.emulator.kernel import Kernel, Watch

CASES = int(os.environ.get("EMULATOR_CASES", 0))
# Tests that cannot pass, by the beginning of their names, and why.
LEFT_OUT = {
    # of Triton 3.7
    "test_neg_preserves_signed_zero": "Triton 3.7 compiles -x as 0 - x",
    "test_noinline_returns_tensor": "Triton 3.7 does not compile it",
    "test_load_cache_modifier[.cv]": "Triton 3.7 writes another modifier",
    # what a machine without CUDA lacks
    "test_histogram": "it reads the assembler's machine code",
    "test_no_rematerialization_op": "it asks torch for CUDA",
    "test_pointer_arguments": "it asks torch for CUDA",
    "test_zero_strided_tensors": "it asks torch for CUDA",
    "test_passing_nested_tuple_with_constexpr_and_jit_hook": "it asks torch for the number of the device",
    # what the emulator finds
    "test_int_annotation": "it stores beyond its tensor",
    "test_if_call[attribute_jit]": "a warp loads what another one has stored, with no barrier between",
    # where the emulator is too slow
    "test_load_store_same_ptr": "it launches 2 billion warps",
}
RACING = {
    "test_atomic_cas[int32-1-relaxed]": "its lock is relaxed, which orders nothing",
    "test_load_scope_sem_coop_grid_cta_one": "two blocks load a number and store it back",
}
"""Those that do have races."""


def pytest_configure(config):
    driver.activate()
    if os.environ.get("EMULATOR_WATCH"):
        watch_all()
    torch.cuda.get_device_capability = lambda device=None: divmod(driver.CAPABILITY, 10)
    torch.cuda.get_device_name = lambda device=None: "emulator"
    torch.cuda.current_stream = lambda device=None: None
    torch.cuda.synchronize = lambda device=None: None
    from triton import _internal_testing  # it asks for the driver and for the device

    _internal_testing.is_cpu = lambda: False  # Triton's fork for CPUs has it
    config.addinivalue_line("markers", "enable_warnings: of Triton's")


def pytest_collection_modifyitems(config, items):
    groups = {}
    for item in items:
        if why := reason(item.name, bool(os.environ.get("EMULATOR_WATCH"))):
            item.add_marker(pytest.mark.skip(reason=why))
        else:
            groups.setdefault(item.originalname, []).append(item)
    if CASES:
        kept = {item for group in groups.values() for item in sorted(group, key=by_name)[:CASES]}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def watch_all():
    plain = Kernel.launch

    def launch(kernel, *arguments, **more):
        watch = Watch(between_warps=False)
        plain(kernel, *arguments, watch=watch, **more)
        assert not watch.not_watched + watch.not_decided

    Kernel.launch = launch


def by_name(item):
    """A number that has nothing to do with what the name says."""
    return hashlib.sha256(item.name.encode()).hexdigest()


def reason(name, is_watched=False):
    """Why a test is left out; None if it is not."""
    rows = {**LEFT_OUT, **RACING} if is_watched else LEFT_OUT
    return next((why for begin, why in rows.items() if name.startswith(begin)), None)
