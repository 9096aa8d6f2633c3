# SPDX-License-Identifier: Apache-2.0
"""What the memory checks say where they cannot look."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from verl_kernel.env.execution import memory_checks
from verl_kernel.env.execution.memory_checks import MemoryChecks
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.kernel import Buffer


@contextmanager
def no_room(ranges, arrays):
    raise MemoryError
    yield


def test_views_whose_memory_cannot_be_kept_are_not_watched(monkeypatch):
    monkeypatch.setattr(memory_checks.rehearsal, "undone", no_room)
    memory = np.zeros(8, np.uint8)
    whole, checks = Buffer(int(memory.ctypes.data), 8), MemoryChecks()
    checks.begin(True, True)
    with pytest.raises(Fault, match="could not be watched for accesses beyond views"):
        checks.launch(
            lambda buffers, **more: SimpleNamespace(sites=[], program=None), [whole], [Buffer(whole.address, 4)]
        )
