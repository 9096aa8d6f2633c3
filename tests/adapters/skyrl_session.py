# SPDX-License-Identifier: Apache-2.0
"""Plays an episode of SkyRL's environment: `python -m tests.adapters.skyrl_session TASKS`."""

import json
import sys

import skyrl_gym

from tests.adapters.packages import FUSED, WRONG
from verl_kernel.adapters.skyrl import task_rows
from verl_kernel.bench.suites import load_suite

skyrl_gym.register(id="kernelgym", entry_point="verl_kernel.adapters.skyrl:KernelEnv")
(row,) = task_rows(load_suite(sys.argv[1]))
env = skyrl_gym.make(row["env_class"], env_config={"device": "cpu"}, extras={**row, "max_turns": 2})
prompt, _ = env.init(row["prompt"])
assert prompt == row["prompt"]
print(json.dumps({"wrong": env.step(WRONG), "fused": env.step(FUSED), "metrics": env.get_metrics()}))
