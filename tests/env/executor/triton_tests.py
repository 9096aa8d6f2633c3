# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that runs Triton's own tests of its language through the executor.

    python -m pytest -p tests.env.executor.triton_tests --device cpu FOLDER_OF_TRITONS_TESTS

`EXECUTOR_CASES=3` keeps so many cases of each test function, the same ones each time.
"""

import hashlib
import os

import torch

from verl_kernel.env.executor import driver

CASES = int(os.environ.get("EXECUTOR_CASES", 0))


def pytest_configure(config):
    driver.activate()
    torch.cuda.get_device_capability = lambda device=None: divmod(driver.CAPABILITY, 10)
    torch.cuda.get_device_name = lambda device=None: "executor"
    torch.cuda.current_stream = lambda device=None: None
    torch.cuda.synchronize = lambda device=None: None
    from triton import _internal_testing  # it asks for the driver and for the device

    _internal_testing.is_cpu = lambda: False  # Triton's fork for CPUs has it
    config.addinivalue_line("markers", "enable_warnings: of Triton's")


def pytest_collection_modifyitems(config, items):
    if not CASES:
        return
    groups = {}
    for item in items:
        groups.setdefault(item.function, []).append(item)
    kept = {item for group in groups.values() for item in sorted(group, key=place)[:CASES]}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def place(item):
    """A place in an order that has nothing to do with parameters."""
    return hashlib.sha256(item.name.encode()).hexdigest()
