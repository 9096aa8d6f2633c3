# SPDX-License-Identifier: Apache-2.0
"""Takes a step of TRL's trainer on rewards of the gym: `python -m tests.adapters.trl_session TASKS`."""

import json
import sys
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig

from examples.trl.train import trainer
from tests.adapters.packages import EXAMPLES, FUSED, WRONG
from verl_kernel.adapters.trl import KernelReward, task_dataset
from verl_kernel.bench.suites import folder_suite
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, LocalPool
from verl_kernel.generated_tasks.tokenizer import train_tokenizer
from verl_kernel.reward.profiling import profiling_reward


class Failing:
    """A gym that cannot judge."""

    async def evaluate(self, task, source, *, kernel="", validate=False, step=None):
        return EvalResult(task_id=task.task_id, status=EvalStatus.INFRA_ERROR, attempts=2)


def main(tasks: Path) -> None:
    """Print what was rewarded, as JSON."""
    suite = folder_suite(tasks)
    (row,) = task_dataset(suite)
    answers = [FUSED, WRONG, "no code", [{"role": "assistant", "content": FUSED}]]
    columns = {key: [row[key]] * len(answers) for key in ("reference", "task_id", "entry_point")}
    with LocalPool(GymOptions(device="cpu", correctness_trials=2, num_judges=2), 3) as pool:
        (result,) = pool.evaluate_many([(suite.tasks[0].task, (EXAMPLES / "fused.py").read_text(), "")])
        reward, metrics = KernelReward(pool), dict[str, float]()
        found = {
            "fused": profiling_reward(result, None),
            "rewards": reward(completions=answers, **columns, log_metric=metrics.__setitem__),
            "metrics": metrics,
            "speedup": result.speedup,
            "lost": KernelReward(Failing())(completions=answers, **columns),
            "logged": trained(tasks.parent, suite, pool),
        }
    print(json.dumps(found))


def trained(folder: Path, suite, gym) -> dict[str, float]:
    """Take a step as the example does; return what the trainer logged of it."""
    tokenizer = train_tokenizer([suite.tasks[0].messages[-1]["content"], FUSED], 512)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, max_position_embeddings=4096,
    )  # fmt: skip
    arguments = GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, max_steps=1, num_generations=2, max_completion_length=4,
        per_device_train_batch_size=2, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    training = trainer(gym, suite, LlamaForCausalLM(config), arguments, tokenizer)
    training.train()
    (logged,) = [row for row in training.state.log_history if "rewards/kernelgym/mean" in row]
    return logged


if __name__ == "__main__":
    main(Path(sys.argv[1]))
