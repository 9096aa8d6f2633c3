# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import rich
from rich.console import Console

from tests.commands.lines import invoked
from tests.generated_tasks import near
from verl_kernel.commands.data.quickstart import _build_with_progress
from verl_kernel.data.families import THRESHOLD
from verl_kernel.data.rows import check_rows
from verl_kernel.errors import ConfigError
from verl_kernel.generated_tasks.difficulty import TABLE
from verl_kernel.generated_tasks.kinds import SPLITS
from verl_kernel.generated_tasks.tokenizer import encode_conversation
from verl_kernel.quickstart import build as quickstart
from verl_kernel.quickstart import options
from verl_kernel.quickstart.build import build
from verl_kernel.quickstart.options import Quickstart, WarmStart, is_complete
from verl_kernel.quickstart.warm_start import train

BRIEF = WarmStart(layers=2, width=64, heads=2, batch_size=4)
SMALL = Quickstart(train_tasks=8, val_tasks=4, conversations=64, warm_start=BRIEF)
HARD = replace(SMALL, world="hard")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("quickstart") / "out"
    return out, build(out, SMALL, lambda step, steps, loss: None)


def references(path, split):
    rows = pq.read_table(path).to_pylist()
    return {row["reward_model"]["ground_truth"] for row in rows if row["extra_info"]["split"] == split}


@pytest.mark.processes
def test_the_validation_holds_every_split(made):
    out, _ = made
    check_rows(out / "train.parquet")
    check_rows(out / "val.parquet")
    assert len(references(out / "train.parquet", "train")) == 8
    found = {split: references(out / "val.parquet", split) for split in SPLITS}
    assert {split: len(texts) for split, texts in found.items()} == SMALL.validation
    assert found["same"] <= references(out / "train.parquet", "train")
    sources = pq.read_table(out / "val.parquet")["data_source"].to_pylist()
    assert sources == [f"kernel_world_{split}" for split, count in SMALL.validation.items() for _ in range(count)]


@pytest.mark.processes
@pytest.mark.parametrize("split", ["new_chain", "new_family"])
def test_the_cold_start_has_no_near_duplicate_of_an_unseen_task(made, split):
    out, _ = made
    talks = pq.read_table(out / "corpus.parquet")["messages"].to_pylist()
    shown = {*near.references(talks), *references(out / "train.parquet", "train")}
    assert near.nearest(references(out / "val.parquet", split), shown) < THRESHOLD


@pytest.mark.processes
def test_no_answer_of_the_cold_start_solves_an_unseen_task(made):
    from verl_kernel.generated_tasks.answers import right_answers
    from verl_kernel.quickstart.drawing import draw
    from verl_kernel.reward.extract import extract_code

    talks = pq.read_table(made[0] / "corpus.parquet")["messages"].to_pylist()
    shown = {extract_code(message["content"]) for talk in talks for message in talk[1::2]}
    validated = draw(SMALL, conversations=0).validated
    unseen = [program for split in ("new_chain", "new_family") for program in validated[split]]
    assert not shown & {answer.source for program in unseen for answer in right_answers(program)}


@pytest.fixture(scope="module")
def loaded(made):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return tuple(kind.from_pretrained(made[0] / "model") for kind in (AutoTokenizer, AutoModelForCausalLM))


@pytest.mark.processes
def test_the_model_learned_and_loads(made, loaded):
    out, manifest = made
    assert manifest["loss"]["last"] < 0.8 * manifest["loss"]["first"]
    tokenizer, model = loaded
    assert (model.config.vocab_size, model.config.hidden_size) == (len(tokenizer), 64)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert {str(weight.dtype) for weight in model.parameters()} == {"torch.float32"}
    assert all(weight.isfinite().all() for weight in model.parameters())
    assert not (out / "sft").exists()


@pytest.mark.processes
def test_the_saved_weights_are_the_trained_ones(made, loaded):
    import torch

    out, manifest = made
    tokenizer, model = loaded
    total = count = 0
    for talk in pq.read_table(out / "corpus.parquet")["messages"].to_pylist():
        ids, targets = encode_conversation(tokenizer, talk)
        with torch.no_grad():
            scores = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        wanted = torch.tensor(targets[1:])
        total -= scores[wanted, torch.tensor(ids[1:])[wanted]].sum().item()
        count += int(wanted.sum())
    # `last` averages the last 20 steps: here all of them.
    assert total / count < manifest["loss"]["last"]


@pytest.mark.processes
def test_assistant_tokens_alone_carry_loss(made, loaded):
    """verl's dataset also scores the line break behind an answer, which our own encoding leaves out."""
    import torch
    from omegaconf import OmegaConf
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    (out, _), (tokenizer, _) = made, loaded
    talks = pq.read_table(out / "corpus.parquet")["messages"].to_pylist()
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 2048})
    dataset = MultiTurnSFTDataset(str(out / "corpus.parquet"), tokenizer, config)
    place = max(range(len(talks)), key=lambda row: len(talks[row]))
    assert [message["role"] for message in talks[place]] == ["user", "assistant"] * 2
    ids, targets = encode_conversation(tokenizer, talks[place])
    row = dataset[place]
    assert row["input_ids"].tolist() == ids
    answered = torch.tensor(targets)
    behind = torch.cat([torch.tensor([False]), answered[:-1] & ~answered[1:]])
    assert torch.equal(row["loss_mask"].bool(), answered | behind)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_the_hard_world_hides_sizes_and_type(tmp_path):
    manifest = build(tmp_path, HARD, lambda step, steps, loss: None)
    assert manifest["options"]["world"] == "hard"
    assert is_complete(tmp_path, HARD)
    for split in ("train", "val"):
        check_rows(tmp_path / f"{split}.parquet")
        for row in pq.read_table(tmp_path / f"{split}.parquet").to_pylist():
            prompt, reference = row["prompt"][0]["content"], row["reward_model"]["ground_truth"]
            assert "ROWS, COLS" in reference
            assert "ROWS, COLS" not in prompt.partition("class")[0]
            assert "DTYPE = " not in prompt
            assert ".to(DTYPE)" in prompt
    assert not is_complete(tmp_path, SMALL)


def test_another_table_of_difficulties_is_another_quickstart(tmp_path):
    table = tmp_path / "difficulty.yaml"
    table.write_text(TABLE.read_text())
    assert replace(HARD, difficulty=table).fingerprint == HARD.fingerprint != SMALL.fingerprint
    table.write_text(TABLE.read_text().replace("decoy: 0.12", "decoy: 0.5"))
    assert replace(HARD, difficulty=table).fingerprint != HARD.fingerprint


def test_options_are_read_without_torch():
    code = "import sys, verl_kernel.quickstart.options; sys.exit({'torch', 'transformers'} & {*sys.modules} != set())"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.processes
def test_complete_means_same_options_and_untouched_files(made, tmp_path):
    out, _ = made
    assert is_complete(out, SMALL)
    assert not is_complete(out, replace(SMALL, seed=1))
    assert not is_complete(tmp_path, SMALL)
    path = out / "val.parquet"
    original = path.read_bytes()
    path.write_bytes(original[:-1])
    assert not is_complete(out, SMALL)
    path.write_bytes(original)
    manifest = (out / "manifest.json").read_text()
    for broken in ("", "[]", json.dumps({"fingerprint": SMALL.fingerprint})):
        (out / "manifest.json").write_text(broken)
        assert not is_complete(out, SMALL)
    (out / "manifest.json").write_text(manifest)
    assert is_complete(out, SMALL)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_the_command_repeats_the_build(made, monkeypatch, tmp_path):
    monkeypatch.setattr(options, "Quickstart", lambda **given: replace(SMALL, **given))
    words = ("data", "quickstart", "--out", out := tmp_path / "new" / "out", "--seed", SMALL.seed)
    said = invoked(*words).output
    assert "8 training tasks, 32 of the validation in 4 splits" in said
    assert "16/16 steps" in said
    again, manifest = json.loads((out / "manifest.json").read_text()), made[1]
    names = ["train.parquet", "val.parquet", "corpus.parquet", "model/tokenizer.json"]
    assert [again["files"][name] for name in names] == [manifest["files"][name] for name in names]
    assert again["loss"]["last"] == pytest.approx(manifest["loss"]["last"], rel=0.05)
    assert "nothing to do" in invoked(*words).output


def test_progress_is_shown_where_richs_console_is_silenced(monkeypatch, tmp_path, capsys):
    """Inspect silences the console that rich shares among all packages of a process."""
    monkeypatch.setattr(rich, "_console", Console(quiet=True))
    monkeypatch.setattr(quickstart, "build", lambda out, options, progress: progress(3, 16, 2.5))
    _build_with_progress(tmp_path, SMALL)
    assert "3/16 steps" in capsys.readouterr().out


@pytest.mark.exhaustive
@pytest.mark.processes
def test_command_fails_with_the_trainers_last_lines(monkeypatch, tmp_path):
    def broken(out, options, progress):
        return train(out, options.warm_start, lambda step, loss: None)

    monkeypatch.setattr(quickstart, "build", broken)
    said = invoked("data", "quickstart", "--out", tmp_path, exit_code=3).output
    assert f"{tmp_path}/sft.log" in said
    assert f"{tmp_path}/sft/model" in said
    assert "Traceback" in (tmp_path / "sft.log").read_text()


def test_the_command_takes_the_length_of_the_cold_start(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(options, "is_complete", lambda out, wanted: asked.append(wanted) or True)
    for words in ([], ["--conversations", "240"]):
        invoked("data", "quickstart", "--out", tmp_path, *words)
    assert [wanted.conversations for wanted in asked] == [Quickstart().conversations, 240]


@pytest.mark.parametrize(("kind", "changes", "said"), [
    (Quickstart, {"val_tasks": 0}, "quickstart.val_tasks"),
    (WarmStart, {"batch_size": 0}, "warm_start.batch_size"),
    (WarmStart, {"heads": 3}, "warm_start.heads is 3; it must be a multiple of kv_heads = 2"),
    *(
        (WarmStart, {key: least - 1}, f"warm_start.{key} is {least - 1}; it must be at least {least}")
        for key, least in {"layers": 2, "width": 16, "heads": 2, "kv_heads": 1, "head_dim": 16}.items()
    ),
])  # fmt: skip
def test_sizes_that_cannot_be_are_refused(kind, changes, said):
    with pytest.raises(ConfigError, match=said):
        kind(**changes)
