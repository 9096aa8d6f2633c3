# SPDX-License-Identifier: Apache-2.0
"""The lock of a device between real processes."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from verl_kernel.env.devices.cuda import lock as device_lock
from verl_kernel.env.devices.cuda.lock import DeviceLock, Sharing
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.limits import evaluation_limit_s
from verl_kernel.errors import InfraError

pytestmark = pytest.mark.slow
HOLDER = """
import sys
from verl_kernel.env.devices.cuda.lock import DeviceLock
lock = DeviceLock("GPU-1/2", 100.0, sys.argv[1])
with getattr(lock, sys.argv[2])():
    print("held", flush=True)
    sys.stdin.readline()
    if len(sys.argv) > 3:
        with getattr(lock, sys.argv[3])():
            print("held", flush=True)
"""


@pytest.fixture
def hold(tmp_path):
    holders = []

    def start(*how):
        command = [sys.executable, "-c", HOLDER, str(tmp_path), *how]
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


@pytest.mark.parametrize("one", ["shared", "exclusive"])
@pytest.mark.parametrize("other", ["shared", "exclusive"])
def test_sharers_share_and_a_clock_is_alone(hold, tmp_path, one, other):
    assert held(hold(one))
    is_refused = "exclusive" in (one, other)
    refused = pytest.raises(InfraError, match="stayed locked") if is_refused else nullcontext()
    with refused, getattr(lock(tmp_path, 0.05 if is_refused else 5.0), other)():
        pass


def test_a_killed_holder_holds_nothing(hold, tmp_path):
    holder = hold("exclusive")
    assert held(holder)
    holder.kill()
    with lock(tmp_path, 10.0).exclusive():
        pass


@pytest.mark.exhaustive
def test_a_waiting_clock_goes_before_later_sharers(hold, tmp_path):
    sharer = hold("shared")
    assert held(sharer)
    clock = hold("exclusive")
    while is_free(tmp_path, "shared"):  # until the clock waits behind the gate
        pass
    sharer.kill()
    assert held(clock)


def test_other_devices_are_other_locks(hold, tmp_path):
    assert held(hold("exclusive"))
    with DeviceLock("GPU-3", 1.0, str(tmp_path)).exclusive():
        pass


def test_a_folder_that_cannot_hold_it(tmp_path):
    with pytest.raises(InfraError, match="cannot be opened"), lock(tmp_path / "missing", 1.0).shared():
        pass


def is_free(folder, kind):
    try:
        with getattr(lock(folder, 0.0), kind)():
            return True
    except InfraError:
        return False


def test_uses_within_uses(tmp_path):
    own = lock(tmp_path, 1.0)
    with own.shared(), own.shared():
        assert is_free(tmp_path, "shared")
        assert not is_free(tmp_path, "exclusive")
        with own.exclusive(), own.shared(), own.exclusive():
            assert not is_free(tmp_path, "shared")
        assert is_free(tmp_path, "shared")
        assert not is_free(tmp_path, "exclusive")
    assert is_free(tmp_path, "exclusive")


def test_a_use_within_a_use_does_not_wait_for_a_waiting_clock(hold, tmp_path):
    own = lock(tmp_path, 5.0)
    with own.shared():
        clock = hold("exclusive")
        while is_free(tmp_path, "shared"):  # until the clock waits behind the gate
            pass
        with own.shared():
            pass
    assert held(clock)


@pytest.mark.exhaustive
def test_two_sharers_that_both_want_it_alone_get_it_in_turn(hold):
    both = [hold("shared", "exclusive") for _ in range(2)]
    assert all(map(held, both))
    for holder in both:
        holder.stdin.write("\n")
        holder.stdin.flush()
    assert all(map(held, both))
    assert [holder.wait(300) for holder in both] == [0, 0]


def test_a_failure_within_gives_everything_back(tmp_path):
    own = lock(tmp_path, 0.05)
    with pytest.raises(ZeroDivisionError), own.shared(), own.exclusive():
        raise ZeroDivisionError
    assert is_free(tmp_path, "exclusive")
    refused = pytest.raises(InfraError, match="stayed locked")
    with own.shared(), lock(tmp_path, 0.05).shared(), refused, own.exclusive():
        pass
    assert is_free(tmp_path, "exclusive")


def test_every_user_may_lock_whatever_the_first_ones_umask():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = tempfile.mkdtemp(dir="/tmp")  # pytest's own are closed to others
    os.chmod(folder, 0o1777)
    before = os.umask(0o077)
    try:
        with lock(folder, 1.0).exclusive():
            pass
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            os._exit(0 if is_free(folder, "exclusive") else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        os.umask(before)
        shutil.rmtree(folder)


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_no_lock(tmp_path, monkeypatch):
    real, locked = fcntl.flock, []

    def flock(fd, kind):
        locked.append(kind)
        if len(locked) == 2:  # after the gate, the device
            for path in tmp_path.glob("*.device.lock"):
                path.unlink()
        real(fd, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    with lock(tmp_path, 1.0).shared():
        assert not is_free(tmp_path, "exclusive")


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "verl_kernel_GPU_1_2.gate.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InfraError, match="cannot be opened"), lock(tmp_path, 1.0).shared():
        pass


SLOW = GymOptions(
    device="cuda", num_judges=16, gpus_per_judge=0.5, load_timeout_s=60, run_timeout_s=240, reference_timeout_s=300
)


@pytest.mark.exhaustive
def test_a_neighbours_slow_evaluation_is_waited_for(tmp_path, monkeypatch):
    """A reference that takes its minutes, and a candidate that uses up its time."""
    now, other = [0.0], lock(tmp_path, 1.0)
    turn = other.exclusive()
    turn.__enter__()

    def sleep(_):
        now[0] += 1.0
        if now[0] == 300 + 60 + 5 * 240:
            turn.__exit__(None, None, None)

    monkeypatch.setattr(device_lock, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    sharing = Sharing("GPU-1/2", replace(SLOW, lock_dir=str(tmp_path)))
    with sharing.shared():
        pass
    assert sharing.waited_s == pytest.approx(1560, abs=2)


def test_the_owner_of_a_judge_is_more_patient_than_the_judge():
    assert evaluation_limit_s(SLOW) >= evaluation_limit_s(replace(SLOW, device="cpu")) + SLOW.patience_s
    assert SLOW.judges_per_gpu == 2
    assert GymOptions(num_judges=3).judges_per_gpu == 3
    assert GymOptions(num_judges=4, gpus_per_judge=1.0).judges_per_gpu == 1
    four = replace(SLOW, gpus_per_judge=0.25)
    assert four.judges_per_gpu == 4
    assert four.patience_s == 3 * SLOW.patience_s
