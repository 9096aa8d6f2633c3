# SPDX-License-Identifier: Apache-2.0
"""The wheel: what is in it, what is found where it is unpacked, and the gym's commands where nothing of verl is."""

import configparser
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

import verl_kernel
from tests.env.waiting import until
from tests.reporting.runs import step, write_lines
from tests.requirements.bare_machine import link, needs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ABSENT = ("verl", "ray", "vllm", "hydra", "omegaconf", "transformers", "tokenizers", "pandas", "tensordict")
FILES = [EXAMPLES / f"{name}.py" for name in ("reference", "fused", "wrong")]
VERDICTS = {"fused": "ok", "wrong": "incorrect"}
pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    words = ["-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True, timeout=600)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_every_module_and_recipe(wheel):
    words = ["git", "ls-files", "verl_kernel", "hydra_plugins"]
    tracked = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in tracked if (ROOT / name).exists()} <= names
    tops = {"verl_kernel", "hydra_plugins", f"verl_kernel-{verl_kernel.__version__}.dist-info"}
    assert {name.split("/")[0] for name in names} == tops
    assert "hydra_plugins/__init__.py" not in names  # Hydra shares this namespace with other plugins


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """Runs Python in a folder that has nothing to do with the wheel, whose contents stand in PYTHONPATH."""
    # By this name Inspect knows what is installed.
    site, folder = tmp_path_factory.mktemp("of") / "site-packages", tmp_path_factory.mktemp("elsewhere")
    zipfile.ZipFile(wheel).extractall(site)

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(site)}
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.replace(str(site), "SITE")

    return run


def test_an_unpacked_wheel_is_whole(elsewhere):
    probe = "import verl_kernel.plugin as p; print(p.__file__); print(p.missing())"
    assert elsewhere("-c", probe).splitlines()[-2:] == ["SITE/verl_kernel/plugin/__init__.py", "{}"]


def test_a_wheels_commands_are_found_by_name(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    points = configparser.ConfigParser()
    points.read_string(archive.read(name).decode())
    assert dict(points["console_scripts"]) == {"verl-kernel": "verl_kernel.cli:app"}
    assert dict(points["verl.plugins"]) == {"verl_kernel": "verl_kernel.plugin"}
    assert dict(points["inspect_ai"]) == {"verl_kernel": "verl_kernel.adapters.inspect_ai"}


def test_inspect_finds_the_task_by_its_name(elsewhere, tmp_path):
    pytest.importorskip("inspect_ai")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mine.py").write_text((EXAMPLES / "reference.py").read_text())
    load = f"import os; os.chdir({str(tmp_path)!r}); from inspect_ai._eval.loader import load_tasks"
    probe = f"{load}; (one,) = load_tasks(['verl_kernel/kernels'], {{'suite': 'tasks'}}); print(one.dataset[0].id)"
    assert elsewhere("-c", probe).splitlines()[-1] == "mine"


def test_a_wheels_command_says_its_version(elsewhere):
    assert elsewhere("-m", "verl_kernel", "--version").strip() == f"verl-kernel {verl_kernel.__version__}"


@pytest.mark.exhaustive
def test_a_wheels_recipe_is_found_from_anywhere(elsewhere):
    shown = elsewhere("-m", "verl.trainer.main_ppo", "--config-name=cpu_quickstart", "--cfg=job")
    assert "kernelgym:" in shown
    assert "experiment_name: cpu_quickstart" in shown


@pytest.fixture(scope="module")
def small(wheel, tmp_path_factory):
    """The folder of an environment that holds our wheel and what it asks for, as links to packages of this one."""
    folder = tmp_path_factory.mktemp("small")
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    for distribution in needs(tuple(Requirement(line).name for line in stated)).values():
        link(distribution, site)
    zipfile.ZipFile(wheel).extractall(site)
    return folder


def command(small: Path, *words: object) -> list[str]:
    return [str(small / "venv" / "bin" / "python3"), "-m", "verl_kernel", *map(str, words)]


def variables(small: Path) -> dict[str, str]:
    path = f"{small / 'venv' / 'bin'}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(small), "COLUMNS": "300", "OMP_NUM_THREADS": "1"}


def run(small: Path, *words: object) -> subprocess.CompletedProcess[str]:
    place = {"cwd": small, "env": variables(small)}
    return subprocess.run(command(small, *words), **place, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def service(small):
    """The address of a service that the small install runs."""
    log = small / "serve.log"
    words = command(small, "serve", "--port=0", "--device=cpu")
    with log.open("w") as out:
        process = subprocess.Popen(words, cwd=small, env=variables(small), stderr=out)
    until(lambda: "serving on" in log.read_text() or process.poll() is not None, 500)
    yield log.read_text().split("serving on ")[1].split()[0]
    process.terminate()
    assert process.wait(timeout=300) == 0, log.read_text()


def test_what_trains_is_absent(small):
    code = f"import importlib.util as u; print([name for name in {ABSENT} if u.find_spec(name)])"
    done = subprocess.run([command(small)[0], "-c", code], env=variables(small), capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("address", [None, "service"])
def test_kernels_are_judged_without_what_trains(small, address, request):
    judges = "--device=cpu" if address is None else f"--address={request.getfixturevalue(address)}"
    done = run(small, "eval", *FILES, judges, "--json")
    assert done.returncode == 0, done.stderr
    assert {Path(one["kernel"]).stem: one["status"] for one in map(json.loads, done.stdout.splitlines())} == VERDICTS


@pytest.mark.exhaustive
def test_a_kernel_is_profiled_without_what_trains(small):
    done = run(small, "profile", *FILES[:2], "--device=cpu")
    assert done.returncode == 0, done.stderr
    assert "predicted" in done.stdout


@pytest.mark.exhaustive
def test_a_suite_is_judged_by_a_service(small, service):
    tasks, kernels = small / "tasks", small / "kernels"
    for folder, file in ((tasks, "reference.py"), (kernels, "fused.py")):
        folder.mkdir()
        (folder / "one.py").write_text((EXAMPLES / file).read_text())
    places = [f"--suite={tasks}", f"--kernels={kernels}", f"--out={small / 'bench'}"]
    done = run(small, "bench", *places, f"--address={service}", "--json")
    assert done.returncode == 0, done.stderr
    assert '"answers": 1' in done.stdout
    assert re.search(r'"correct": {"value": 1\.0', done.stdout), done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("preflight", "cpu_quickstart"),
        pytest.param(("data", "quickstart", "--out=q"), marks=pytest.mark.exhaustive),
    ],
)
def test_what_trains_says_what_to_install(small, words):
    done = run(small, *words)
    assert done.returncode != 0
    assert "pip install 'verl-kernel[verl]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_looks_at_the_gym_alone(small):
    done = run(small, "doctor", "--json")
    found = {line["topic"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stdout
    assert {"torch", "triton", "mode", "isolation", "training"} <= found.keys()
    assert not {"verl", "Ray", "registries"} & found.keys()
    assert "verl-kernel[verl]" in found["training"]["value"]
    assert done.stderr == ""


def test_a_run_is_reported_without_what_trains(small):
    (small / "run").mkdir()
    write_lines(small / "run" / "metrics.jsonl", step(1, **{"critic/score/mean": 0.5}))
    done = run(small, "report", small / "run")
    assert done.returncode == 0, done.stderr
    assert (small / "run" / "report.html").is_file()


def test_an_endpoint_is_asked_without_what_trains(small):
    tasks = small / "suite"
    tasks.mkdir()
    (tasks / "one.py").write_text((EXAMPLES / "reference.py").read_text())
    model = ("--base-url=http://127.0.0.1:9/v1", "--model=m", "--retries=0")
    done = run(small, "bench", f"--suite={tasks}", *model, f"--out={small / 'asked'}")
    assert done.returncode == 3, done.stderr
    assert "http://127.0.0.1:9/v1 does not answer" in done.stderr


@pytest.mark.exhaustive
def test_other_judges_than_the_services_are_refused(small, service):
    done = run(small, "eval", *FILES, f"--address={service}", "--trials=2")
    assert done.returncode == 2
    assert f"--trials is 2, but the service at {service} judges with 5" in done.stderr


@pytest.mark.exhaustive
def test_no_service_is_a_sentence(small):
    done = run(small, "eval", *FILES, "--address=http://127.0.0.1:9")
    assert done.returncode == 2
    assert "no service answers at http://127.0.0.1:9" in done.stderr
    assert done.stderr.count("\n") == 1
