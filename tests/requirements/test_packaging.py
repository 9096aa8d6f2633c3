# SPDX-License-Identifier: Apache-2.0
"""The wheel holds what a user needs."""

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


def test_the_wheel_holds_every_module_and_recipe(wheel):
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
def test_an_installed_wheel_is_found_by_everyone(wheel, tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip("install", "--quiet", "--no-deps", "--target", str(site), str(wheel))
    environment = {**os.environ, "PYTHONPATH": str(site)}
    probe = "import verl_kernel.plugin as p; print(p.__file__); print(p.missing())"
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines()[-2:] == [str(site / "verl_kernel" / "plugin" / "__init__.py"), "{}"], done.stderr[
        -2000:
    ]
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
    assert "kernelgym:" in done.stdout, done.stderr[-2000:]
    assert "experiment_name: cpu_quickstart" in done.stdout, done.stderr[-2000:]


def test_the_version_is_one():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{verl_kernel.__version__}"' in text


def test_no_file_names_a_package_host_but_pytorchs_own():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    host = re.compile(r"(--index-url|--extra-index-url|--find-links)[ =]\S+|https?://[^\s)]*(pypi|whl|simple)")
    for name in files:
        if (ROOT / name).suffix in {".txt", ".toml", ".md", ".sh", ".yaml", ".yml", ".cfg"} or name == "Makefile":
            text = (ROOT / name).read_text().replace("TORCH_INDEX ?= https://download.pytorch.org/whl/cpu\n", "")
            assert not host.search(text), name
