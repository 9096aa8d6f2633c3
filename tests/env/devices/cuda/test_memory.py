# SPDX-License-Identifier: Apache-2.0
"""Memory of a GPU, with a driver that is made up: who has how much, and whose failure it is when there is none left."""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.env.devices.cuda.test_foreign_processes import options
from tests.env.gyms import pretend
from tests.env.pretend.pretend_gpu import backend
from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env import EvalStatus, GymOptions, Task, resolve_device
from verl_kernel.env.devices.cuda import memory_shares
from verl_kernel.env.devices.cuda.lock import DeviceLock
from verl_kernel.env.devices.cuda.memory_shares import shares
from verl_kernel.env.judge import judge as judges
from verl_kernel.env.reference.reference import Reference
from verl_kernel.errors import EnvironmentNotReady, InfraError, TaskError

pytestmark = pytest.mark.slow
GB = 1 << 30
OPTIONS = GymOptions(device="cpu", static_check="off", correctness_trials=2)
SHORT_OF_MEMORY = REFERENCE.replace(
    "        return torch.relu",
    '        if hasattr(torch, "shortage"):\n            raise torch.OutOfMemoryError("CUDA out of memory")\n'
    "        return torch.relu",
)


@pytest.fixture
def gpu(monkeypatch):
    """A driver for one GPU of 80 GB, with so much free; what was asked of it."""
    driver = SimpleNamespace(total=80 * GB, free=80 * GB, fraction=None, emptied=[])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (driver.free, driver.total))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share: setattr(driver, "fraction", share))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: driver.emptied.append(True))
    device = resolve_device("cuda", probe=False)
    monkeypatch.setattr(type(device), "uuid", "GPU-1")
    return device, driver


@pytest.mark.parametrize(("judges_on_it", "share"), [(1, 1.0), (2, 0.5), (4, 0.25)])
def test_judges_and_runners_fit_a_gpu_together(gpu, tmp_path, judges_on_it, share):
    device, driver = gpu
    given = options(tmp_path, num_judges=8, gpus_per_judge=share, memory_mb=12000)
    device.adopt(given)
    runner = device.granted(0, given).memory_mb
    assert runner == min(12000, 80 * 1024 // judges_on_it // 2 - 600)
    assert judges_on_it * (driver.fraction * driver.total + runner * (1 << 20)) < driver.total
    assert driver.fraction * driver.total > 5 * GB
    assert 0 < device.cache_bytes < driver.fraction * driver.total / 2


def test_a_grant_that_leaves_a_judge_nothing_is_refused_by_name(gpu, tmp_path):
    with pytest.raises(EnvironmentNotReady, match="kernelgym.memory_mb is 81000.*at most 80464 fits"):
        gpu[0].adopt(options(tmp_path, memory_mb=81000))
    with pytest.raises(EnvironmentNotReady, match="kernelgym.memory_mb.*2 of its judges.*at most 74294 fits"):
        gpu[0].adopt(options(tmp_path, memory_mb=75000, num_judges=2))


def test_a_task_too_large_for_half_a_gpu_gets_it_alone(gpu, tmp_path, nvml):
    device, driver = gpu
    nvml()
    given = options(tmp_path, num_judges=2, gpus_per_judge=0.5, memory_mb=36864)
    device.adopt(given)
    half, kept = driver.fraction, device.cache_bytes + 4 * (600 << 20)
    assert device.granted(9 * GB, given).memory_mb < 20 * 1024
    with pytest.raises(torch.OutOfMemoryError, match="too large for one of the judges that share the GPU"):
        device.granted(10 * GB, given)
    with device.whole():
        assert not device.is_divided
        assert device.granted(30 * GB, given).memory_mb == 36864
        assert 30 * GB < driver.fraction * driver.total <= driver.total - (36864 << 20) - kept
        with pytest.raises(InfraError), DeviceLock("GPU-1", 0.0, str(tmp_path)).shared():
            pass
    assert device.is_divided
    assert driver.fraction == half
    assert len(driver.emptied) == 2


def test_without_what_it_is_granted_no_runner_starts(gpu):
    device, driver = gpu
    driver.free = 4096 << 20
    device.grant(4096)
    with pytest.raises(InfraError, match="4096 MB free.*kernelgym.memory_mb = 4097"):
        device.grant(4097)


def test_the_allocator_is_emptied_while_the_gpu_is_still_locked(gpu, tmp_path, monkeypatch):
    device, driver = gpu
    device.adopt(options(tmp_path))

    def empty_cache():
        with pytest.raises(InfraError), DeviceLock("GPU-1", 0.0, str(tmp_path)).exclusive():
            pass
        driver.emptied.append(True)

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    with pytest.raises(ZeroDivisionError), device.shared():
        raise ZeroDivisionError
    assert driver.emptied == [True]


def test_what_a_runner_needs_is_counted():
    reference = Reference(Task(REFERENCE), resolve_device("cpu"))
    assert 0 < reference.runner_bytes < 1 << 20
    reference.state = {"w": torch.empty(GB, device="meta")}
    reference.input_bytes, reference.output_bytes = 3 << 20, 5 << 20
    assert reference.weight_bytes == (4096 << 20) + sum(tensor.nbytes for tensor in reference.init.tensors)
    assert reference.runner_bytes == 2 * reference.weight_bytes + (3 + 2 * 5 << 20)


@pytest.fixture
def judge(monkeypatch):
    with judges.Judge(OPTIONS, seed=1) as judge:
        monkeypatch.setattr(judge._device, "misfit", lambda *task: memory_shares.misfit(*task))  # as on a GPU
        yield judge
    vars(torch).pop("shortage", None)


def test_a_judge_without_memory_says_nothing_about_the_task(judge):
    task = Task(SHORT_OF_MEMORY, task_id="hungry")
    torch.shortage = True
    for _ in range(2):
        with pytest.raises(InfraError, match="no memory left.*reference hungry.*kernelgym.memory_mb = 4096"):
            judge.evaluate(task, HONEST)
    del torch.shortage
    assert judge.evaluate(task, HONEST).status is EvalStatus.OK
    torch.shortage = True  # in a trial of a reference that is known
    with pytest.raises(InfraError, match="no memory left"):
        judge.evaluate(task, HONEST)


def test_a_judge_short_of_memory_beside_others_tries_alone(judge, monkeypatch):
    entered, device = [], type(judge._device)

    @contextmanager
    def whole(self):
        entered.append(vars(torch).pop("shortage"))
        with monkeypatch.context() as patch:
            patch.setattr(device, "is_divided", False)
            yield

    monkeypatch.setattr(device, "whole", whole)
    monkeypatch.setattr(device, "is_divided", True)
    for _ in range(2):  # first while the reference is prepared, then in a trial
        torch.shortage = True
        assert judge.evaluate(Task(SHORT_OF_MEMORY), HONEST).status is EvalStatus.OK
    assert entered == [True] * 2


HOARDER = """
import sys
if "verl_kernel.env.runner.zygote" in sys.orig_argv:
    import torch
    from pretend_gpu import PretendGpu, backend
    from verl_kernel.env import backends
    class Full(PretendGpu):
        def to_device(self, tensor):
            if hasattr(sys, "hoard"):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().to_device(tensor)
    backends.resolve_backend = lambda name, probe=True: backend(Full())
"""


def test_a_candidate_that_takes_all_memory_is_out_of_memory(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, HOARDER)
    monkeypatch.setattr(judges, "resolve_backend", lambda name: backend())
    with judges.Judge(OPTIONS, seed=1) as judge:
        result = judge.evaluate(Task(REFERENCE), candidate("import sys\nsys.hoard = 1\nreturn self.right(x, y)"))
    assert (result.status, result.error.stage) == (EvalStatus.OOM, "correctness"), result.error


@pytest.mark.exhaustive
def test_a_task_too_large_for_any_runner_is_named_first(judge):
    large = REFERENCE.replace("torch.randn(8, 64)", "torch.randn(8192, 64)")
    judge._options = replace(OPTIONS, memory_mb=7)
    with pytest.raises(TaskError, match="reference big cannot serve.* needs 9 MB.*kernelgym.memory_mb = 7: raise it"):
        judge.evaluate(Task(large, task_id="big"), HONEST)


@pytest.mark.exhaustive
def test_references_that_are_kept_are_bounded_in_bytes(monkeypatch):
    weights = REFERENCE.replace("torch.randn(size)", "torch.randn(size), requires_grad=False")
    weights = weights.replace(
        "self.scale = scale", "self.scale = scale\n        self.register_buffer('b', torch.randn(1 << 20))"
    )
    tasks = [Task(f"{weights}# {number}") for number in range(4)]
    monkeypatch.setattr("verl_kernel.env.devices.cpu.device.CpuDevice.cache_bytes", 20 << 20, raising=False)
    with judges.Judge(OPTIONS, seed=1) as judge:
        for task in tasks:
            judge.evaluate(task, "x = 1")
        assert len(judge._references) == 2  # of 8 MB each: weights, and what they are set back to
        assert judge._references.get(tasks[3].fingerprint)
        assert not judge._references.get(tasks[0].fingerprint)


def test_recipes_for_80_gb_hold_the_largest_tasks():
    from verl_kernel import config

    text = (Path(config.__file__).parent / "gpus/eight.yaml").read_text()
    granted = int(text.split("memory_mb: ")[1].split()[0])
    assert granted > 16384 + 2 * 8192 + 2 * 50
    _, alone = shares(81559, GymOptions(device="cuda", num_judges=2, gpus_per_judge=0.5, memory_mb=granted))
    assert alone.judge > granted
