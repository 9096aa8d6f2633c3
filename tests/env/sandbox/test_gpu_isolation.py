# SPDX-License-Identifier: Apache-2.0
"""Which GPU is a judge's own, and what zygote and runner are told and may read; the driver's files are invented."""

from types import SimpleNamespace

import pytest
import torch

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.sandbox import gpu_isolation
from verl_kernel.env.sandbox.child_environment import child_environment

UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa")
SLICE = "GPU-bbbbbbbb-cccc-dddd-eeee-ffffffffffff"


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Two GPUs whose nodes are numbered against the order of the bus, the first cut into slices."""
    for bus, minor, uuid in (("0000:3b:00.0", 1, UUIDS[0]), ("0000:af:00.0", 0, UUIDS[1])):
        (folder := tmp_path / "gpus" / bus).mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    for part, number in (("gi1", 12), ("gi1/ci0", 13)):
        (folder := tmp_path / "capabilities" / "gpu1" / "mig" / part).mkdir(parents=True)
        (folder / "access").write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")
    monkeypatch.setattr(gpu_isolation, "DRIVER", str(tmp_path))


@pytest.fixture
def judge(monkeypatch, driver):
    """The CUDA device of a judge: what it tells its zygote about a GPU with this UUID and bus number."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    def tell(uuid, bus=None, visible=None):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        device = resolve_device("cuda", probe=False)
        pci = {} if bus is None else {"pci_domain_id": 0, "pci_bus_id": bus, "pci_device_id": 0}
        device.properties = SimpleNamespace(uuid=uuid.removeprefix("GPU-"), **pci)
        environment = device.zygote_env()
        return environment.get(gpu_isolation.MINOR), environment.get("CUDA_VISIBLE_DEVICES")

    return tell


@pytest.mark.parametrize(("uuid", "bus", "visible", "minor", "named"), [
    (UUIDS[0], None, None, "1", UUIDS[0]),
    (UUIDS[1], None, "1,0", "0", UUIDS[1]),
    (UUIDS[1], 0xAF, "3", "0", UUIDS[1]),
    (SLICE, 0x3B, "MIG-bbbbbbbb,MIG-c", "1", "MIG-bbbbbbbb"),  # a slice keeps the name that its caller gave it
    (SLICE, 0x3B, None, None, None),  # what cannot be told from others closes nothing
    (SLICE, 0x3B, "0", None, "0"),
    (SLICE, None, "2", None, "2"),
])  # fmt: skip
def test_a_judge_names_its_gpu_by_uuid(judge, uuid, bus, visible, minor, named):
    """An index would count from 0 again where one node alone can be opened."""
    assert judge(uuid, bus, visible) == (minor, named)


def test_a_zygote_passes_on_what_it_was_told(monkeypatch):
    monkeypatch.setenv(gpu_isolation.MINOR, "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[0])
    device = resolve_device("cuda", probe=False)
    environment = device.zygote_env()
    assert (environment[gpu_isolation.MINOR], environment["CUDA_VISIBLE_DEVICES"]) == ("3", UUIDS[0])
    assert "/dev/nvidia3" in device.isolation().nodes


def test_one_gpu_has_its_own_nodes(driver):
    own = gpu_isolation.profile({gpu_isolation.MINOR: "1"}, dev="/d").nodes
    nodes = ["/d/nvidia1", "/d/nvidia-caps/nvidia-cap12", "/d/nvidia-caps/nvidia-cap13"]
    assert [name for name in own if name[-1].isdigit()] == nodes
    assert not any("*" in name for name in own)
    assert "/d/nvidia[0-9]*" in gpu_isolation.profile({}, dev="/d").nodes


def test_a_device_that_computes_on_the_host_grants_nothing():
    profile = resolve_device("cpu").isolation()
    assert not any((profile.nodes, profile.readable, profile.may_start_programs, profile.may_listen))


def test_variables_of_a_gpu_reach_judge_zygote_and_runner(monkeypatch):
    values = {name: f"/opt/{name.lower()}" for name in gpu_isolation.GPU_VARIABLES}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert {"CUDA_DEVICE_ORDER", "CC", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"} <= set(values)
    assert child_environment().items() >= values.items()
    assert resolve_device("cuda", probe=False).zygote_env().items() >= values.items()


def test_a_compiler_is_named_by_its_path(tmp_path):
    (compiler := tmp_path / "gcc").touch()
    compiler.chmod(0o755)
    assert gpu_isolation.kept({"PATH": str(tmp_path)}) == {"CC": str(compiler)}
    assert gpu_isolation.kept({"PATH": str(tmp_path), "CC": "gcc"}) == {"CC": str(compiler)}
    assert gpu_isolation.kept({"PATH": "/nowhere", "CC": "icx"}) == {"CC": "icx"}


def test_what_the_variables_name_may_be_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    opened = gpu_isolation.readable({
        "LD_LIBRARY_PATH": f"/opt/lib:relative::{tmp_path}/home:{tmp_path}/home/me/lib:/:/tmp",
        "TRITON_PTXAS_PATH": "/opt/ptx[as]", "CC": "/opt/gcc-13/bin/gcc", "TMPDIR": "/tmp/judge",
    })  # fmt: skip
    compilers = (f"/opt/gcc-13/{part}" for part in ("bin", "lib*", "include", "*-linux-*"))
    assert set(opened) == {"/opt/lib", f"{tmp_path}/home/me/lib", "/opt/ptx[[]as]", *compilers}
    assert gpu_isolation.readable({"CC": "/usr/bin/gcc"}) == ()
