# SPDX-License-Identifier: Apache-2.0
"""Pins what the fork server of the CPU recipe leans on: verl, Ray, vLLM, Hydra and multiprocessing."""

import inspect
import multiprocessing.popen_spawn_posix
import multiprocessing.spawn
import os
from pathlib import Path

import ray
from ray._private import ray_constants

RAY = Path(ray.__file__).parent


def test_the_variables_of_verls_workers_are_texts():
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    variables = get_ppo_ray_runtime_env()["env_vars"]
    assert variables
    assert all(isinstance(value, str) for value in variables.values())


def test_ray_joins_the_setup_file_to_its_folder():
    assert ray_constants.SETUP_WORKER_FILENAME == "setup_worker.py"
    assert "setup_worker_path=os.path.join(" in (RAY / "_private" / "node.py").read_text()
    assert "ray_constants.SETUP_WORKER_FILENAME," in (RAY / "_private" / "node.py").read_text()
    # The interpreter, this script, flags, the worker's script and its options.
    assert (
        "            sys.executable,\n            setup_worker_path,\n"
        in (RAY / "_private" / "services.py").read_text()
    )


def test_rays_script_takes_two_options_and_runs_the_rest():
    source = (RAY / "_private" / "workers" / "setup_worker.py").read_text()
    assert source.count("add_argument(") == 2
    assert '"--serialized-runtime-env-context"' in source
    assert '"--language"' in source
    assert (RAY / "_private" / "workers" / "default_worker.py").exists()


def test_multiprocessing_reads_its_command_line_to_spawn():
    assert "spawn.get_command_line(" in inspect.getsource(multiprocessing.popen_spawn_posix)
    command = multiprocessing.spawn.get_command_line(tracker_fd=1, pipe_handle=2)
    assert os.fsencode(command[0]) == os.fsencode(multiprocessing.spawn.get_executable())
    assert "-c" in command


def test_vllm_spawns_its_engine_inside_a_ray_actor():
    from vllm.utils import system_utils

    assert '"spawn"' in inspect.getsource(system_utils._maybe_force_spawn)
