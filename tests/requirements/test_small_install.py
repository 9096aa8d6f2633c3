# SPDX-License-Identifier: Apache-2.0
"""The wheel without its extras: the gym and its commands, where there is no verl, no Ray, no vLLM and no Hydra."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.requirements.bare_machine import link, needs
from tests.service.serving import wait_for

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ABSENT = ("verl", "ray", "vllm", "hydra", "omegaconf", "transformers", "tokenizers", "pandas", "tensordict")
pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of an environment that holds our wheel and what it asks for, as links to packages of this one."""
    folder = tmp_path_factory.mktemp("small")
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    for distribution in needs(tuple(Requirement(line).name for line in stated)).values():
        link(distribution, site)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return folder


def command(installed, *words):
    (python,) = (installed / "venv" / "bin").glob("python3")
    return [str(python), "-m", "verl_kernel", *map(str, words)]


def environment(installed):
    return {
        "PATH": f"{installed / 'venv' / 'bin'}:/usr/bin:/bin",
        "HOME": str(installed),
        "COLUMNS": "300",
        "OMP_NUM_THREADS": "1",
    }


def run(installed, *words):
    return subprocess.run(
        command(installed, *words),
        cwd=installed,
        env=environment(installed),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def service(installed):
    """The address of a service that the small install runs."""
    log = installed / "serve.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command(installed, "serve", "--port=0", "--device=cpu"),
            cwd=installed,
            env=environment(installed),
            stderr=out,
        )
    wait_for(lambda: "serving on" in log.read_text() or process.poll() is not None, 120)
    yield log.read_text().split("serving on ")[1].split()[0]
    process.terminate()
    assert process.wait(timeout=60) == 0, log.read_text()


def test_what_trains_is_absent(installed):
    code = f"import importlib.util as u; print([name for name in {ABSENT} if u.find_spec(name)])"
    python = command(installed)[0]
    done = subprocess.run([python, "-c", code], env=environment(installed), capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def verdicts(text):
    return {Path(one["kernel"]).stem: one["status"] for one in map(json.loads, text.splitlines())}


WANTED = {"fused": "ok", "wrong": "incorrect"}
FILES = [EXAMPLES / f"{name}.py" for name in ("reference", "fused", "wrong")]


def test_eval(installed):
    done = run(installed, "eval", *FILES, "--device=cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert verdicts(done.stdout) == WANTED


def test_eval_by_a_service(installed, service):
    done = run(installed, "eval", *FILES, f"--address={service}", "--json")
    assert done.returncode == 0, done.stderr
    assert verdicts(done.stdout) == WANTED


def test_profile(installed):
    done = run(installed, "profile", *FILES[:2], "--device=cpu")
    assert done.returncode == 0, done.stderr
    assert "predicted" in done.stdout


def test_bench_by_a_service(installed, service):
    tasks, kernels = installed / "tasks", installed / "kernels"
    for folder in (tasks, kernels):
        folder.mkdir()
    (tasks / "one.py").write_text((EXAMPLES / "reference.py").read_text())
    (kernels / "one.py").write_text((EXAMPLES / "fused.py").read_text())
    words = (
        f"--suite={tasks}",
        f"--kernels={kernels}",
        f"--address={service}",
        f"--out={installed / 'bench'}",
        "--json",
    )
    done = run(installed, "bench", *words)
    assert done.returncode == 0, done.stderr
    assert '"answers": 1' in done.stdout
    assert re.search(r'"correct": {"value": 1\.0', done.stdout), done.stdout


@pytest.mark.parametrize("words", [("doctor",), ("preflight", "cpu_quickstart"), ("data", "quickstart", "--out=q")])
def test_what_trains_says_what_to_install(installed, words):
    done = run(installed, *words)
    assert done.returncode != 0
    assert "pip install 'verl-kernel[verl]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_other_judges_than_the_services_are_refused(installed, service):
    done = run(installed, "eval", *FILES, f"--address={service}", "--trials=2")
    assert done.returncode == 2
    assert f"--trials is 2, but the service at {service} judges with 5" in done.stderr


def test_no_service_is_a_sentence(installed):
    done = run(installed, "eval", *FILES, "--address=http://127.0.0.1:9")
    assert done.returncode == 2
    assert "no service answers at http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.linesep.join(done.stderr.splitlines()[1:]) == ""
