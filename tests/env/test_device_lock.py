# SPDX-License-Identifier: Apache-2.0
"""The lock of a device between real processes."""

import os
import signal
import subprocess
import sys

import pytest

from verl_kernel.env.devices.device_lock import DeviceLock
from verl_kernel.errors import InfraError

HOLDER = """
import sys
from verl_kernel.env.devices.device_lock import DeviceLock
with getattr(DeviceLock("GPU-1/2", 10.0, sys.argv[1]), sys.argv[2])():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path):
    holders = []

    def start(how):
        command = [sys.executable, "-c", HOLDER, str(tmp_path), how]
        holders.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return holders[-1]

    yield start
    for holder in holders:
        holder.kill()
        holder.communicate()


def held(holder):
    return holder.stdout.readline() == "held\n"


def lock(folder, timeout_s):
    return DeviceLock("GPU-1/2", timeout_s, str(folder))


def test_sharers_share_and_a_clock_is_alone(hold, tmp_path):
    assert held(hold("shared"))
    with lock(tmp_path, 5.0).shared():
        pass
    with pytest.raises(InfraError, match="stayed locked"), lock(tmp_path, 0.05).exclusive():
        pass


def test_a_clock_keeps_everybody_out(hold, tmp_path):
    assert held(hold("exclusive"))
    for kind in ("shared", "exclusive"):
        with pytest.raises(InfraError, match="stayed locked"), getattr(lock(tmp_path, 0.05), kind)():
            pass


def test_a_killed_holder_holds_nothing(hold, tmp_path):
    holder = hold("exclusive")
    assert held(holder)
    os.kill(holder.pid, signal.SIGKILL)
    with lock(tmp_path, 10.0).exclusive():
        pass


def test_a_waiting_clock_goes_before_later_sharers(hold, tmp_path):
    sharer = hold("shared")
    assert held(sharer)
    clock = hold("exclusive")
    gate = lock(tmp_path, 0.02)
    while True:  # until the clock waits behind the gate
        try:
            with gate.shared():
                pass
        except InfraError:
            break
    sharer.kill()
    assert held(clock)


def test_other_devices_are_other_locks(hold, tmp_path):
    assert held(hold("exclusive"))
    with DeviceLock("GPU-3", 1.0, str(tmp_path)).exclusive():
        pass


def test_a_folder_that_cannot_hold_it(tmp_path):
    with pytest.raises(InfraError, match="cannot be opened"), lock(tmp_path / "missing", 1.0).shared():
        pass
