# SPDX-License-Identifier: Apache-2.0
"""The command from conversations to adapters that PEFT loads."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.lines import invoked
from verl_kernel.generated_tasks.tokenizer import train_tokenizer

TEXTS = ["def f(x): return x", "import torch", "x + y", "while True: pass"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder, tokenizer = tmp_path_factory.mktemp("model"), train_tokenizer(TEXTS, 300)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen3Config(vocab_size=len(tokenizer), tie_word_embeddings=True, **sizes, **heads)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "talks.parquet"
    rows = [
        [{"role": "user", "content": TEXTS[i % 4]}, {"role": "assistant", "content": TEXTS[(i + 1) % 4]}]
        for i in range(12)
    ]
    pq.write_table(pa.table({"messages": rows, "level": [i % 2 for i in range(12)]}), path)
    return path


def run(talks: Path, model: Path, out: Path, *extra: str, exit_code: int = 0) -> str:
    small = "--loras 4 --chosen 2 --rank 2 --batch-size 4 --micro-batch-size 2 --held-out 4 --selections 2".split()
    files = ["--data", talks, "--model", model, "--out", out]
    return invoked("remix", *files, *small, *extra, exit_code=exit_code).output


def test_one_adapter_for_each_key(talks: Path, model: Path, tmp_path: Path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    run(talks, model, tmp_path, *"--steps 2 --router prompt --key-column level --gradient-checkpointing".split())
    summary = json.loads((tmp_path / "remix.json").read_text())
    assert {path: about["key"] for path, about in summary["adapters"].items()} == {"adapter_0": "0", "adapter_1": "1"}
    assert len((tmp_path / "losses.jsonl").read_text().splitlines()) == 2
    for path in summary["adapters"]:
        peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), str(tmp_path / path))
        assert peft.peft_config["default"].r == 4


def test_more_steps_go_on_where_the_run_ended(talks: Path, model: Path, tmp_path: Path):
    run(talks, model, tmp_path, "--router", "prompt", "--steps", "1")
    said = run(talks, model, tmp_path, "--router", "prompt", "--steps", "3")
    assert "step 1/3" not in said
    assert "step 2/3" in said
    assert "rank 4, exact for the key 'all'" in said


def test_the_paper_s_router_says_that_its_adapter_is_not_exact(talks: Path, model: Path, tmp_path: Path):
    said = run(talks, model, tmp_path, "--steps", "1")
    assert "no single adapter is exact for this router" in said
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (("--router", "prompt", "--key-column", "family"), "has no column 'family'; it has messages, level"),
        (("--key-column", "level"), "--key-column is 'level' and --router is layer, which reads no key"),
        (("--held-out", "0"), "--held-out is 0; a router of the kind `layer` needs rows"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(talks: Path, model: Path, tmp_path: Path, extra: tuple, said: str):
    assert said in run(talks, model, tmp_path, *extra, exit_code=2)
