# SPDX-License-Identifier: Apache-2.0
"""Memory by its address."""

import torch

from tests.env.processes import printed
from verl_kernel.env.devices.cpu.host_bytes import host_bytes

WATCHED = """
import sys
import torch
from verl_kernel.env.devices.cpu.host_bytes import host_bytes
tensor, events = torch.arange(4), []
sys.addaudithook(lambda event, arguments: events.append(event))
host_bytes(tensor.data_ptr(), 8)[:] = host_bytes(tensor.data_ptr() + 24, 8)
print(tensor.tolist(), [event for event in events if event.startswith("ctypes")])
"""


def test_an_array_shares_the_bytes_at_an_address():
    tensor = torch.arange(4)
    host_bytes(tensor.data_ptr() + 8, 8)[:] = host_bytes(tensor.data_ptr() + 24, 8)
    assert tensor.tolist() == [0, 3, 2, 3]
    assert host_bytes(torch.empty(0).data_ptr(), 0).size == 0


def test_copying_is_no_use_of_ctypes():
    """Which the tripwire would note against a candidate whose kernel is launched."""
    assert printed("-c", WATCHED).strip() == "[3, 1, 2, 3] []"
