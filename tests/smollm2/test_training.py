# SPDX-License-Identifier: Apache-2.0
"""Cold start and two steps of the recipe with the real model, tokenizer and chat template: `make test-smollm2`."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from tests.e2e import weights
from tests.e2e.runs import Run
from verl_kernel.reporting.steps import read_steps

ROOT = Path(__file__).parents[2]
MADE = os.environ.get("SMOLLM2_DIR", "")
"""What `python -m recipes.cpu_smollm2` made."""

pytestmark = [
    pytest.mark.smollm2,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(
        not (Path(MADE) / "manifest.json").is_file() or not MADE,
        reason="SMOLLM2_DIR names no folder of `python -m recipes.cpu_smollm2`: `make test-smollm2` makes one",
    ),
]


def run_recipe(script: str, folder: Path, *overrides: str) -> str:
    """Run a script of the recipe on `folder`; return what it said."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SMOLLM2_DIR": str(folder), "RUN_DIR": str(folder / "run")}
    done = subprocess.run(
        [ROOT / "recipes" / "cpu_smollm2" / script, *overrides], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, "\n".join(done.stdout.splitlines()[-60:])
    return done.stdout


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """The folder after a cold start of two steps, and what the trainer said."""
    folder = tmp_path_factory.mktemp("smollm2")
    for name in ("base", "manifest.json", "train.parquet", "val.parquet"):
        (folder / name).symlink_to(Path(MADE).resolve() / name)
    pq.write_table(pq.read_table(Path(MADE) / "corpus.parquet").slice(0, 4), folder / "corpus.parquet")
    return folder, run_recipe("run_sft.sh", folder)


@pytest.fixture(scope="module")
def run(warm):
    folder, _ = warm
    run_recipe(
        "run.sh", folder, "trainer.total_training_steps=2", "trainer.val_before_train=false", "trainer.test_freq=-1",
        "trainer.save_freq=-1", "actor_rollout_ref.rollout.n=2", "data.train_batch_size=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2", "kernelgym.max_turns=2", "data.max_response_length=1152",
        "actor_rollout_ref.rollout.max_model_len=1600",
        # The recipe's bfloat16 would hide a small difference between the weights of vLLM and of the trainer.
        "actor_rollout_ref.rollout.dtype=float32",
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
        f"trainer.v1.sampler.sampler_kwargs.record_dir={folder}/run/samples",
    )  # fmt: skip
    return Run(folder / "run")


def test_the_cold_start_trains_the_pretrained_model(warm):
    folder, said = warm
    losses = [float(line.partition("train/loss:")[2].split()[0]) for line in said.splitlines() if "train/loss:" in line]
    assert len(losses) == 2
    assert all(0 < loss < 2 for loss in losses)
    base, model = (weights.load(folder / name) for name in ("base", "model"))
    assert 1e-5 < weights.drift(base, model) < 1e-2
    tokenizers = [AutoTokenizer.from_pretrained(folder / name) for name in ("base", "model")]
    assert tokenizers[0].chat_template == tokenizers[1].chat_template
    assert tokenizers[0].get_vocab() == tokenizers[1].get_vocab()


def test_two_steps_are_logged_and_every_answer_judged(run):
    assert [step["step"] for step in read_steps(run.folder / "metrics.jsonl")] == [1, 2]
    for number, step in enumerate(run.steps, 1):
        assert all(math.isfinite(step[key]) for key in ("actor/entropy", "actor/grad_norm", "rollout_corr/kl"))
        turns = [turn for row in run.rows(number) for turn in row["turns"]]
        assert len(turns) == 2 * 2 * 2
        assert "infra_error" not in {turn["result"]["status"] for turn in turns}


def test_a_row_is_the_talk_as_the_models_own_template_writes_it(run, warm):
    tokenizer = AutoTokenizer.from_pretrained(warm[0] / "model")
    prompts = pq.read_table(warm[0] / "train.parquet")["prompt"].to_pylist()
    asked = {tokenizer.apply_chat_template(list(p), tokenize=False, add_generation_prompt=True) for p in prompts}
    for row in run.rows(1):
        assert tokenizer.decode(row["prompts"]) in asked
        first, second = row["turns"]
        between = tokenizer.decode(row["responses"][first["stop"] : second["start"]])
        ended = row["responses"][first["stop"] - 1] == tokenizer.eos_token_id
        assert between.startswith(f"{'' if ended else '<|im_end|>'}\n<|im_start|>user\nVerdict: ")
        assert between.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_vllm_and_the_trainer_see_the_same_model(run, warm):
    assert weights.mean_gap(weights.load(warm[0] / "model"), run.rows(1)[:2]) < 1e-3
