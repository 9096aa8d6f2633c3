# SPDX-License-Identifier: Apache-2.0
"""TRL's GRPOTrainer on rewards of the gym: `pip install '.[trl]'`, then `python examples/trl/train.py`."""

from trl import GRPOConfig, GRPOTrainer

from verl_kernel.adapters.trl import KernelReward, task_dataset
from verl_kernel.bench.suites import Suite, load_suite
from verl_kernel.client import Gym, open_gym
from verl_kernel.env import GymOptions

MODEL = "Qwen/Qwen3-0.6B"
SUITE = "cpu"  # or kernelbench:PATH, a parquet file, a folder of references


def trainer(gym: Gym, suite: Suite, model: object, arguments: GRPOConfig, tokenizer: object = None) -> GRPOTrainer:
    return GRPOTrainer(
        model,
        reward_funcs=KernelReward(gym),
        args=arguments,
        train_dataset=task_dataset(suite),
        processing_class=tokenizer,
    )


if __name__ == "__main__":  # judges are processes of their own
    settings = GRPOConfig("outputs/trl", num_generations=4, per_device_train_batch_size=4, max_completion_length=2048)
    with open_gym(GymOptions(device="cpu", num_judges=2), seed=None) as judges:
        trainer(judges, load_suite(SUITE), MODEL, settings).train()
