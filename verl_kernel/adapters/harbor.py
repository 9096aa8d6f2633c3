# SPDX-License-Identifier: Apache-2.0
"""Harbor: judges what an agent left as its answer to a task of `verl-kernel bench-harbor`, as its bench has judged.

python -m verl_kernel.adapters.harbor TESTS KERNEL LOGS
"""

from __future__ import annotations

import json
from pathlib import Path

import typer

from verl_kernel.adapters.judges import answered, figures_of
from verl_kernel.client import open_gym
from verl_kernel.commands.sentences import guarded
from verl_kernel.data.source_files import read_source
from verl_kernel.env import GymOptions, Task
from verl_kernel.errors import DataError
from verl_kernel.reward.extract import no_program
from verl_kernel.reward.judging import Judged
from verl_kernel.reward.profiling import ProfilingReward


def judge(tests: Path, kernel: Path, logs: Path) -> None:
    """Judge a kernel, and write `reward.json` and the whole `verdict.json` into a folder.

    Raises:
        InfraError: the gym could not judge it; there is no reward, so that the harness has an error, not a bad answer.
        ConfigError: an option of the run is unknown to this version.
    """
    stated = json.loads((tests / "judge.json").read_text(encoding="utf-8"))
    task, reward = (
        Task(read_source(tests / "reference.py"), stated["task_id"]),
        ProfilingReward.from_node(stated["reward"]),
    )
    try:
        code = read_source(kernel)
    except DataError:  # missing, or no text
        judged = Judged.of(None, no_program(task), reward)
    else:
        with open_gym(GymOptions.from_node(stated["gym"]), None) as gym:
            judged = answered(Judged.of(code, gym.evaluate_many([(task, code, kernel.name)])[0], reward))
    (logs / "verdict.json").write_text(judged.result.model_dump_json() + "\n", encoding="utf-8")
    (logs / "reward.json").write_text(json.dumps({"reward": judged.reward, **figures_of(judged)}) + "\n")


if __name__ == "__main__":
    typer.run(guarded(judge))
