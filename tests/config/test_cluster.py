# SPDX-License-Identifier: Apache-2.0
"""The Slurm script starts what it should, seen by programs of Slurm's and Ray's names; and docs/cluster.md is taken."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.config.composed import composed
from verl_kernel.preflight.hardware import Machine
from verl_kernel.preflight.placement import check_judges
from verl_kernel.reward.options import parse_options
from verl_kernel.verl_keys import find

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "recipes" / "slurm" / "cluster.sh"
STUBS = {
    "scontrol": 'tr , "\\n" <<< "$3"',
    # Like the real one it runs the command elsewhere: options first, then the command.
    "srun": 'where=("$1" "$2"); while [[ $1 == --* ]]; do shift; done\necho "${where[*]} $*" >> "$CALLS"; "$@"',
    "ray": "true",
    "python": "true",
}


def called(tmp_path: Path, nodes: tuple[str, str], **environment: str) -> list[str]:
    """What the script has Slurm run, a line each, in the order of the names of nodes."""
    for name, body in STUBS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    shutil.copy(tmp_path / "ray", tmp_path / "run.sh")
    variables = {"SLURM_JOB_NODELIST_HET_GROUP_0": nodes[0], "SLURM_JOB_NODELIST_HET_GROUP_1": nodes[1], **environment}
    calls = tmp_path / "calls"
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path / "run.sh"), "trainer.nnodes=2"],
        env={**os.environ, **variables, "CALLS": str(calls), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(calls.read_text().splitlines())


def test_it_is_valid_bash_and_wants_a_recipe():
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    done = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "name the run.sh of a recipe" in done.stderr


def test_every_node_joins_one_cluster(tmp_path):
    calls = called(tmp_path, ("t1,t2", "j1,j2"))
    judge = 'ray start --address=t1:6379 --num-cpus=8 --num-gpus=8 --resources={"judge": 8} --block'
    assert [call for call in calls if "run.sh" not in call] == [
        "--het-group=0 --nodelist=t1 python recipes/slurm/await_nodes.py t1:6379 4",
        "--het-group=0 --nodelist=t1 ray start --head --port=6379 --block",
        "--het-group=0 --nodelist=t1 ray status --address=t1:6379",
        "--het-group=0 --nodelist=t2 ray start --address=t1:6379 --block",
        f"--het-group=1 --nodelist=j1 {judge}",
        f"--het-group=1 --nodelist=j2 {judge}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("per_gpu", "judges", "gpus"), [("1", 16, 1.0), ("2", 32, 0.5)])
def test_the_recipe_gets_overrides_that_compose(tmp_path, per_gpu, judges, gpus):
    calls = called(tmp_path, ("t1", "j1,j2"), JUDGES_PER_GPU=per_gpu)
    (words,) = (call.split(" kernelgym.")[1:] for call in calls if "run.sh" in call)
    *ours, last = words
    overrides = [f"kernelgym.{word}" for word in (*ours, last.removesuffix(" trainer.nnodes=2"))]
    assert last.endswith("trainer.nnodes=2")
    config = composed("drkernel_8b", *overrides)
    OmegaConf.resolve(config.kernelgym)
    options = parse_options(find(config, "kernelgym")).env
    assert (options.num_judges, options.gpus_per_judge, options.cpus_per_judge) == (judges, gpus, 1.0)
    assert options.judge_resources == (("judge", 1.0),)
    list(check_judges(config, Machine("cuda", gpus=8)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_ray_knows_the_options_that_the_script_uses():
    from ray.scripts.scripts import start, status

    known = {name for parameter in start.params for name in parameter.opts}
    assert {"--head", "--port", "--address", "--num-cpus", "--num-gpus", "--resources", "--block"} <= known
    assert "--address" in {name for parameter in status.params for name in parameter.opts}


PAGE = (ROOT / "docs" / "cluster.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)


def test_a_configuration_of_the_page_parses():
    (block,) = BLOCKS
    options = parse_options(find(OmegaConf.create(block), "kernelgym")).env
    assert options.judge_resources == (("judge", 1.0),)
