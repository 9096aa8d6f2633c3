# SPDX-License-Identifier: Apache-2.0
"""Judge a kernel from Python."""

from pathlib import Path

from verl_kernel.client import open_gym
from verl_kernel.env import GymOptions, Task

if __name__ == "__main__":  # judges are processes of their own
    task = Task(Path("examples/reference.py").read_text())
    with open_gym(GymOptions(device="cpu"), seed=None) as gym:
        (result,) = gym.evaluate_many([(task, Path("examples/fused.py").read_text(), "fused")])
    print(result.status, result.timing_source, result.speedup)
