# SPDX-License-Identifier: Apache-2.0
"""`make check-gpu-lock`: the packages of requirements/gpu.txt in an environment of their own, proved without a GPU.

With exactly these versions the plugin is imported, every recipe is composed and checked as a start checks it, for
machines that are only described, and the tests of what the plugin brings into verl and of the emulator run. Nothing is
left behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import ROOT, step
from machine import Refused, check_disk, check_machine
from wheels import Wheels

LOCK = ROOT / "requirements" / "gpu.txt"
GB = 11.0
TESTS = (
    *("advantage", "loss", "reward", "rollout", "sampler"),
    *("compat", "config", "plugin", "preflight", "commands/test_preflight.py"),
    # The lock's llvmlite is older than that of requirements/cpu.txt, and compiles what judges without a GPU execute.
    *("env/emulator", "env/execution", "env/conformance"),
)
PROOF = """
import torch, triton, verl, vllm
from verl_kernel import plugin
print(f"    torch {torch.__version__}, triton {triton.__version__}, verl {verl.__version__}, vllm {vllm.__version__}")
assert not plugin.missing(), f"verl's registries lack {plugin.missing()}"
"""


def main() -> int:
    """Install, import and test, by further words for pytest; status 1 after one sentence, or pytest's own status."""
    with tempfile.TemporaryDirectory(prefix="gpu-lock-", dir=os.environ.get("CHECK_FOLDER")) as folder:
        try:
            return prove(Path(folder), sys.argv[1:])
        except (Refused, OSError) as exc:
            sys.stderr.write(f"make check-gpu-lock: {exc}\n")
            return 1


def prove(folder: Path, words: list[str]) -> int:
    """Make the environment in `folder` and return the status of its tests."""
    check_machine(untested=False)
    check_disk([folder], GB, "name another disk with CHECK_FOLDER=/disk")
    os.environ.setdefault("UV_CACHE_DIR", str(folder / "cache"))
    os.environ.pop("PYTHONPATH", None)
    venv = folder / "venv"
    with step(f"packages of requirements/{LOCK.name}"):
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        wheels = Wheels(venv, plain=False)
        wheels.bootstrap(next(line for line in LOCK.read_text().splitlines() if line.startswith("uv==")))
        wheels.install("-r", LOCK)
        wheels.install("--no-build-isolation", "--editable", ROOT)
    environment = {**wheels.environment, "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    with step("the plugin in verl's registries"):
        proof = subprocess.run([wheels.python, "-c", PROOF], cwd=folder, env=environment)
    with step("recipes and what the plugin brings into verl"):
        tests = [str(ROOT / "tests" / name) for name in TESTS]
        command = [wheels.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *words]
        return subprocess.run(command, cwd=ROOT, env=environment).returncode or proof.returncode


if __name__ == "__main__":
    sys.exit(main())
