# SPDX-License-Identifier: Apache-2.0
"""The gym runs on a machine that has torch and triton and nothing of verl; what it lacks is carried as wheels."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import gym
import pytest
from packaging.requirements import Requirement

from tests.requirements.bare_machine import make_machine, pack_wheels

ROOT = Path(__file__).parents[2]
GYM = ROOT / "verl_kernel" / "env"
RAY_FILES = {GYM / "pool" / "cluster" / f"{name}.py" for name in ("judge", "router")}
"""Of the pool on a Ray cluster; the rest of the package must do without."""
FOREIGN = ("verl", "ray", "vllm", "hydra", "omegaconf", "transformers", "tokenizers", "pandas", "pyarrow", "rich",
           "typer", "tensordict", "safetensors", "jinja2")  # fmt: skip
BLOCK = f"""
import sys

class Others:
    def __init__(self, finder):
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {FOREIGN} else self._finder.find_spec(name, path, target)

sys.meta_path[:] = map(Others, sys.meta_path)
"""
EVALUATION = """
from tests.env.programs import HONEST, REFERENCE
from verl_kernel.env.pool.local import LocalPool
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
with LocalPool(GymOptions(device="cpu", correctness_trials=2, static_check="off")) as pool:
    (result,) = pool.evaluate_many([(Task(REFERENCE), HONEST, "")])
print(result.status.value, result.rewarded)
"""


@pytest.fixture
def without(tmp_path):
    """Runs code in Pythons, all of them, that find no package of FOREIGN."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    def run(code):
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600
        )

    return run


def test_the_names_are_blocked(without):
    done = without("import hydra")
    assert done.returncode == 1
    assert "No module named 'hydra'" in done.stderr


@pytest.mark.exhaustive
@pytest.mark.processes
def test_the_gym_imports_nothing_of_verl_or_ray(without):
    files = sorted(GYM.rglob("*.py"))
    assert len(files) > 80
    assert set(files) > RAY_FILES
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file not in RAY_FILES]
    imports = [name.removesuffix(".__init__") for name in names]
    done = without(f"import importlib\nfor name in {imports}:\n    importlib.import_module(name)")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_pool_evaluates_without_verl_and_ray(without):
    done = without(EVALUATION)
    assert done.stdout.split() == ["ok", "True"], done.stderr[-2000:]


def test_what_is_lacking_is_found_by_version_too(monkeypatch):
    lines = {"pytest": "pytest>=999", "numpy": "numpy>=1.9", "nope": "nope>=1"}
    monkeypatch.setattr(gym, "requirements", lambda: lines)
    assert gym.lacking() == ["pytest>=999", "nope>=1"]


def test_wheels_are_fetched_for_the_other_machine(monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(gym, "_pip", lambda *words: said.append(words))
    gym.fetch(tmp_path, "3.10", "aarch64")
    words = said[0]
    assert words[:2] == ("download", "--only-binary=:all:")
    assert words[words.index("--python-version") + 1] == "3.10"
    assert "manylinux_2_28_aarch64" in words
    assert not any("x86_64" in word for word in words)
    requirements = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*(>=[\d.]+)?", word)]
    wanted = {Requirement(word).name for word in requirements}
    assert wanted >= {"pydantic", "psutil", "nvidia-ml-py", "pytest", "tomli"}
    assert not wanted & {"torch", "triton", "numpy"}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Variables of a shell on a machine without pydantic and nvidia-ml-py, and the folder of their wheels."""
    folder = tmp_path_factory.mktemp("machine")
    folder.chmod(0o755)
    pack_wheels(folder / "wheels")
    return make_machine(folder), folder / "wheels"


def make(environment, *words):
    # A checkout's own environment would come before the machine's Python.
    command = [shutil.which("make"), "VENV=/nowhere", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_gpu_tests_are_collected_on_a_bare_machine_with_wheels(machine):
    environment, wheels = machine
    done = make(environment, "test-gpu", f"WHEELS={wheels}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert re.search(r"SKIPPED \[\d{2}\] .*no CUDA device", done.stdout), done.stdout
    assert re.search(r"\d{2} skipped", done.stdout.splitlines()[-2])


@pytest.mark.slow
def test_without_wheels_one_sentence_says_what_is_lacking(machine):
    environment, _ = machine
    done = make(environment, "test-gpu")
    assert done.returncode != 0
    assert "needs pydantic>=2.9, nvidia-ml-py>=12, which" in done.stderr
    assert "make gpu-wheels" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_candidate_is_judged_with_carried_packages(machine, tmp_path):
    """Runners too find what lies in a folder that is in PYTHONPATH only."""
    _, wheels = machine
    for wheel in wheels.iterdir():
        zipfile.ZipFile(wheel).extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    code = EVALUATION + "import pydantic; print(pydantic.__file__)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["ok", "True", str(tmp_path / "pydantic" / "__init__.py")], done.stderr[-2000:]
