# SPDX-License-Identifier: Apache-2.0
"""The best of several samples, by Inspect: `inspect eval examples/inspect_ai/best_of.py --model openai/gpt-4o`.

`pip install '.[inspect]'` comes first; `-T suite=PATH` names tasks of your own, by an absolute path.
"""

from inspect_ai import Epochs, Task, task, task_with

from verl_kernel.adapters.inspect_ai import kernels


@task
def best_of(suite: str = "cpu", turns: int = 3, samples: int = 4, device: str = "cpu") -> Task:
    return task_with(kernels(suite, turns=turns, device=device), epochs=Epochs(samples, ["mean", "max"]))
