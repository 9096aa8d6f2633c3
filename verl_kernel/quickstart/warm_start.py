# SPDX-License-Identifier: Apache-2.0
"""Cold start of a small Qwen3: random weights, then one pass over the corpus in verl's SFT trainer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from verl_kernel.errors import TrainingError
from verl_kernel.quickstart.lookup import ROPE_THETA, start_with_lookup
from verl_kernel.quickstart.options import RECIPE, WarmStart

_STEP = re.compile(r"\bstep:(\d+) - .*\btrain/loss:(\S+)")
_TAIL = 60
"""Lines of the log in an error; half of them are torch's report on a failed worker."""


def build_model(options: WarmStart, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build a float32 Qwen3 with tied embeddings and weights drawn from `seed`, which begin with a lookup."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        head_dim=options.head_dim,
        initializer_range=options.width**-0.5,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )
    model = Qwen3ForCausalLM(config)
    start_with_lookup(model)
    return model


def train(
    folder: Path, options: WarmStart, on_step: Callable[[int, float], None], overrides: Sequence[str] = ()
) -> tuple[Qwen3ForCausalLM, list[float]]:
    """Run verl's SFT trainer on `folder`/corpus.parquet, from the model in `folder`/sft/model.

    Args:
        folder: also takes all of the trainer's output, as sft.log, and its checkpoint, under sft.
        options: batch size and threads.
        on_step: called after each step with its number and its loss.
        overrides: further Hydra overrides of the recipe.

    Returns:
        The trained model, float32, and the loss of every step in nats per assistant token.

    Raises:
        TrainingError: the trainer failed; holds its last lines.
    """
    log = folder / "sft.log"
    tail: deque[str] = deque(maxlen=_TAIL)
    losses: list[float] = []
    with log.open("w", encoding="utf-8") as file, _trainer(folder, options, overrides) as child:
        assert child.stdout is not None
        for line in child.stdout:
            file.write(line)
            file.flush()
            tail.append(line.rstrip())
            if match := _STEP.search(line):
                losses.append(float(match[2]))
                on_step(int(match[1]), losses[-1])
    if child.returncode or not losses:
        raise TrainingError(
            f"verl's SFT trainer ended with exit code {child.returncode} after {len(losses)} steps; "
            f"its output is in {log}, the last of it:\n" + "\n".join(tail)
        )
    return _trained_model(folder / "sft", len(losses)), losses


@contextmanager
def _trainer(folder: Path, options: WarmStart, overrides: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Yield the running trainer; it ends if the caller stops early. Only the caller reads its output."""
    command, environment = _command(folder, options, overrides), _environment(options)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        try:
            yield child
        except BaseException:  # also for Ctrl-C
            child.terminate()
            raise


def _trained_model(work: Path, step: int) -> Qwen3ForCausalLM:
    # verl writes its own attention setting and bfloat16 into the config.json of the float32 weights.
    config = AutoConfig.from_pretrained(work / "model")
    checkpoint = work / "checkpoints" / f"global_step_{step}" / "huggingface"
    model: Qwen3ForCausalLM = AutoModelForCausalLM.from_pretrained(checkpoint, config=config, dtype=torch.float32)
    return model


def _command(folder: Path, options: WarmStart, overrides: Sequence[str]) -> list[str]:
    quoted = str(folder.resolve()).replace("\\", "\\\\").replace("'", "\\'")
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--nproc_per_node=1"),
        *("-m", "verl.trainer.sft_trainer", f"--config-name={RECIPE.stem}", f"quickstart_dir='{quoted}'"),
        f"data.train_batch_size={options.batch_size}",
        f"data.micro_batch_size_per_gpu={options.batch_size}",
        *overrides,
    ]


def _environment(options: WarmStart) -> dict[str, str]:
    return {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "OMP_NUM_THREADS": str(options.threads),
        # Idle threads that spin would occupy the core that a busy process needs.
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "HYDRA_FULL_ERROR": "1",
        "PYTHONUNBUFFERED": "1",
    }
