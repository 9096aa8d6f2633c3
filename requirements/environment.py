# SPDX-License-Identifier: Apache-2.0
"""`make env`: the packages of requirements/cpu.txt in a virtual environment, made, completed or mended.

Run it as often as you like. It looks at what is there, installs what is missing or damaged, and in the end imports what
a training run imports; only then is the environment marked as whole.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import installed
from machine import PYTHONS, Refused, check_disk, check_machine
from wheels import Wheels, explain

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "cpu.txt"
CUDA_LIBRARIES = re.compile(r"(nvidia|cuda)-(?!ml-py)")
"""Names of the packages that only a CUDA build of torch loads."""
CPU_GB, CUDA_GB, CUDA_DOWNLOAD_GB = 3.2, 6.5, 3.2
_VENV_ENTRIES = {"bin", "include", "lib", "lib64"}
_PROOF = """
import torch, triton, vllm.v1.engine.async_llm, verl.trainer.main_ppo
import vllm.v1.worker.cpu_worker, verl.trainer.ppo.v1, verl.workers.rollout.vllm_rollout.vllm_async_server
from verl_kernel import plugin
assert not plugin.missing(), f"verl's registries lack {plugin.missing()}"
"""


def main() -> int:
    """Make the environment; status 1 after one sentence that says what is in the way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--torch-index", default="", help="index of CPU wheels, asked when the index at hand has none")
    parser.add_argument("--plain", action="store_true", help="ignore all configuration of pip and uv")
    parser.add_argument("--untested", action="store_true", help="go on with a processor on which nothing was run")
    options = parser.parse_args()
    try:
        check_machine(options.untested)
        Environment(options.venv.absolute(), options.torch_index, options.plain).complete()
    except (Refused, OSError) as exc:
        sentence = exc if isinstance(exc, Refused) else explain(str(exc))
        sys.stderr.write(f"make env: {sentence}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nmake env: interrupted; run it again and it goes on where it stopped\n")
        return 130
    return 0


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what runs, and how long it took."""
    start = time.monotonic()
    sys.stdout.write(f"==> {what}\n")
    sys.stdout.flush()
    yield
    sys.stdout.write(f"==> {what}: {time.monotonic() - start:.0f}s\n")


class Environment:
    """A virtual environment on its way to what the lock file says."""

    def __init__(self, venv: Path, torch_index: str, plain: bool) -> None:
        """Take the folder `venv`, which need not exist."""
        self.venv, self._torch_index = venv, torch_index
        self._wheels = Wheels(venv, plain)
        self._mark, self._chosen = venv / ".whole", venv / "requirements.txt"

    def complete(self) -> None:
        """Install what is missing or damaged and prove it by importing it; silent when there is nothing to do."""
        if not self._has_python():
            self._make_venv()
        damaged = installed.remove_damaged(self._site())
        if not damaged and self._is_as_marked():
            return
        self._mark.unlink(missing_ok=True)
        if damaged:
            sys.stdout.write(f"==> damaged, installed anew: {', '.join(damaged)}\n")
        with step(f"packages of requirements/{LOCK.name} in {self.venv}"):
            self._install(damaged)
        with step("importing torch, triton, vllm, verl and the plugin"):
            self._prove()
        self._mark.write_text("\n".join([self._key(), *installed.names(self._site())]))
        sys.stdout.write(f"==> its commands are on your path after: source {self.venv}/bin/activate\n")

    def _has_python(self) -> bool:
        python = self._wheels.python
        probe = "import sys, pip; print(*sys.version_info[:2])"
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True) if python.exists() else None
        version = tuple(map(int, done.stdout.split())) if done and done.returncode == 0 else None
        runs_this = python.exists() and Path(sys.prefix).samefile(self.venv)
        return version in PYTHONS and (runs_this or version == sys.version_info[:2])

    def _make_venv(self) -> None:
        is_foreign = self.venv.exists() and not (self.venv / "pyvenv.cfg").exists()
        if is_foreign and {path.name for path in self.venv.iterdir()} - _VENV_ENTRIES:
            raise Refused(f"{self.venv} holds other things than a virtual environment: name another folder with VENV=")
        check_disk([self.venv], CPU_GB)
        with step(f"virtual environment {self.venv}, Python {sys.version_info[0]}.{sys.version_info[1]}"):
            shutil.rmtree(self.venv, ignore_errors=True)
            done = subprocess.run([sys.executable, "-m", "venv", self.venv], capture_output=True, text=True)
        if done.returncode and "ensurepip" in done.stdout + done.stderr:
            package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
            raise Refused(f"this Python came without its module venv: install it (Debian: apt install {package})")
        if done.returncode:
            raise Refused(explain(done.stdout + done.stderr))

    def _install(self, damaged: list[str]) -> None:
        self._wheels.bootstrap(self._locked("uv"))
        self._wheels.forget(damaged)
        with_cuda = self._choose_torch()
        lines = [line for line in LOCK.read_text().splitlines() if with_cuda or not CUDA_LIBRARIES.match(line)]
        self._chosen.write_text("\n".join(lines) + "\n")
        self._wheels.install("-r", self._chosen)
        self._wheels.install("--no-build-isolation", "--editable", ROOT)

    def _choose_torch(self) -> bool:
        """Install a CPU build of torch where one can be had; return whether it is the CUDA build that is wanted."""
        found = installed.version(self._site(), "torch")
        torch = self._locked("torch")
        if found.partition("+")[0] == torch.partition("==")[2]:
            return not found.endswith("+cpu")
        folders = [self.venv, self._wheels.cache]
        for index in dict.fromkeys(("", self._torch_index)):
            if self._wheels.offers(f"{torch}+cpu", index):
                check_disk(folders, CPU_GB)
                self._wheels.install(f"{torch}+cpu", index=index)
                return False
        sys.stdout.write(
            "    no index in reach has a CPU build of torch for this Python: its CUDA build comes instead, with its "
            f"libraries, {CUDA_DOWNLOAD_GB} GB to download and {CUDA_GB} GB on disk; it needs no GPU either\n"
        )
        check_disk(folders, CUDA_GB)
        return True

    def _prove(self) -> None:
        # Its byte code stays for the processes of a run: where Python may write none, each would compile all anew.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            [self._wheels.python, "-c", _PROOF], cwd=self.venv, env={**environment, "VERL_PLATFORM": "cpu"},
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
            raise Refused(f"all is installed and does not import ({last}): remove {self.venv} and run it again")

    def _is_as_marked(self) -> bool:
        """Whether the lock file is that of the last proof and all that was installed then still is."""
        if not self._mark.exists():
            return False
        key, *names = self._mark.read_text().splitlines()
        return key == self._key() and set(names) <= set(installed.names(self._site()))

    def _key(self) -> str:
        digest = hashlib.sha256(LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes())
        return f"{digest.hexdigest()} {ROOT}"

    def _site(self) -> Path:
        return next(self.venv.glob("lib/python3.*/site-packages"), self.venv / "lib")

    def _locked(self, name: str) -> str:
        return next(line for line in LOCK.read_text().splitlines() if line.startswith(f"{name}=="))


if __name__ == "__main__":
    sys.exit(main())
