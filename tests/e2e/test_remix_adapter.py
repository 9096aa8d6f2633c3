# SPDX-License-Identifier: Apache-2.0
"""A ReMix adapter of the quickstart's model, written by `verl-kernel remix`, trains on in verl for a step."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.runs import command, train

pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(7200)]

LORAS, CHOSEN, RANK = 4, 2, 4
LEARN = f"--loras {LORAS} --chosen {CHOSEN} --rank {RANK} --scale rslora --selections 2 --steps 4 --batch-size 4"
RATES = "--router prompt --held-out 8 --learning-rate 0.02 --router-learning-rate 0.05"
"""Large enough that vLLM without the adapter would answer otherwise."""


@pytest.fixture(scope="module")
def adapter(quickstart, tmp_path_factory):
    out = tmp_path_factory.mktemp("remix")
    files = ["--data", str(quickstart / "corpus.parquet"), "--model", str(quickstart / "model"), "--out", str(out)]
    words = [sys.executable, "-m", "verl_kernel", "remix", *files, *LEARN.split(), *RATES.split()]
    subprocess.run(words, check=True, env={**os.environ, "VERL_PLATFORM": "cpu"})
    return out / "adapter"


@pytest.fixture(scope="module")
def run(quickstart, adapter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained_on")
    words = command(
        quickstart, folder, f"actor_rollout_ref.model.lora_adapter_path={adapter}",
        f"actor_rollout_ref.model.lora_rank={CHOSEN * RANK}", "actor_rollout_ref.model.lora.merge=true",
        "trainer.total_training_steps=1", "trainer.save_freq=1", f"trainer.default_local_dir={folder}/checkpoints",
        "data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    )  # fmt: skip
    return train(folder, words)


def test_vllm_answers_with_the_adapter(run, quickstart, adapter):
    # By how much vLLM's probabilities would differ from the trainer's if it had the base alone.
    missing = change_of_probabilities(quickstart, adapter)
    assert missing > 0.001
    assert run.steps[0]["training/rollout_probs_diff_mean"] < missing / 10


def change_of_probabilities(quickstart: Path, adapter: Path) -> float:
    """The mean over tokens of eight conversations."""
    base = AutoModelForCausalLM.from_pretrained(quickstart / "model")
    tokenizer = AutoTokenizer.from_pretrained(quickstart / "model")
    talks = pq.read_table(quickstart / "corpus.parquet").slice(0, 8).column("messages").to_pylist()
    texts = [tokenizer.apply_chat_template(talk, return_dict=True)["input_ids"] for talk in talks]

    def probabilities(model: torch.nn.Module) -> torch.Tensor:
        tokens = [torch.tensor([text]) for text in texts]
        logits = [model(input_ids=one).logits[:, :-1].softmax(-1).gather(-1, one[:, 1:, None]) for one in tokens]
        return torch.cat([one.flatten() for one in logits])

    with torch.no_grad():
        without = probabilities(base)
        return (probabilities(PeftModel.from_pretrained(base, str(adapter))) - without).abs().mean().item()


def test_the_step_starts_at_the_adapter_and_changes_it_alone(run, quickstart, adapter):
    assert run.steps[0]["actor/grad_norm"] > 0
    saved = torch.load(run.folder / "checkpoints/global_step_1/actor/model_world_size_1_rank_0.pt", weights_only=False)
    saved = {name: getattr(weight, "full_tensor", lambda weight=weight: weight)() for name, weight in saved.items()}
    exported = load_file(adapter / "adapter_model.safetensors")
    base = load_file(quickstart / "model" / "model.safetensors")
    for name, weight in exported.items():
        moved = (saved[name.replace(".weight", ".default.weight")] - weight).abs().max()
        assert 0 < moved < 0.01, name  # one step of Adam moves nothing by more than its rate, 3e-4
    frozen = {name: weight for name, weight in saved.items() if "lora_" not in name}
    plain = {name.removeprefix("base_model.model.").replace(".base_layer", ""): value for name, value in frozen.items()}
    assert base.keys() <= plain.keys()
    assert all(torch.equal(plain[name], weight) for name, weight in base.items())
