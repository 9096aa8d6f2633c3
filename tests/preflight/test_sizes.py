# SPDX-License-Identifier: Apache-2.0
"""Fewer tasks than a batch, lengths without room, and loggers and GPUs that do not exist are told before a start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.config.composed import composed
from tests.preflight.folder import row, write_folder
from tests.sentences import refused
from verl_kernel.data.rows import write_rows
from verl_kernel.errors import ConfigError, DataError, EnvironmentNotReady
from verl_kernel.preflight import placement
from verl_kernel.preflight.hardware import Machine, described
from verl_kernel.preflight.names import check_backends
from verl_kernel.preflight.placement import check_loggers
from verl_kernel.preflight.sizes import check_batch, check_lengths, check_memory, check_prompts
from verl_kernel.preflight.unread_keys import check_unread, unread

CPU = Machine("cpu", gpus=0)
PROMPTS = [row(prompt=[{"role": "user", "content": "Write it. " * length}]) for length in (1, 1, 1, 300)]


class Template:
    """A tokenizer that takes a word for a token."""

    chat_template = "plain"

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return " ".join(message["content"] for message in messages)

    def __call__(self, text: str, **_: object) -> dict[str, list[str]]:
        return {"input_ids": text.split()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("sizes"))
    write_rows([row()] * 5, folder / "few.parquet")
    write_rows(PROMPTS * 2, folder / "long.parquet")
    write_rows(PROMPTS[3:], folder / "all_long.parquet")
    return folder


@pytest.fixture(autouse=True)
def platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    return


def config(folder: Path, *overrides: str):
    return composed("cpu_quickstart", f"quickstart_dir={folder}", *overrides)


@pytest.mark.parametrize("overrides", [
    ("few.parquet",), ("train.parquet", "data.train_batch_size=17"), ("train.parquet", "data.gen_batch_size=20"),
    ("train.parquet", "data.train_max_samples=7"),
])  # fmt: skip
def test_fewer_tasks_than_a_batch_are_refused(folder, overrides):
    made = config(folder, f"data.train_files={folder}/{overrides[0]}", *overrides[1:])
    with refused("data.train_files", "a batch needs", "set data.train_batch_size", by=DataError):
        check_batch(made)


@pytest.mark.parametrize("overrides", [
    (), ("data.train_batch_size=16",), ("trainer.val_only=true", "data.train_batch_size=500"),
    # Other modes fetch prompts one by one.
    ("trainer_mode=colocate_async", "data.gen_batch_size=20"),
])  # fmt: skip
def test_a_batch_is_found_or_not_needed(folder, overrides):
    check_batch(config(folder, *overrides))


def test_files_are_counted_together(folder):
    few = f"{folder}/few.parquet"
    check_batch(config(folder, f"data.train_files=[{few},{few}]"))


@pytest.mark.parametrize(("files", "words"), [
    ({"train": "long"}, ("data.train_files: 6 of 8 prompts have at most 256 tokens", "8 are needed")),
    ({"val": "all_long"}, ("data.val_files: 0 of 1 prompts", "raise data.max_prompt_length")),
])  # fmt: skip
def test_prompts_that_verl_would_leave_out_are_not_counted(folder, files, words, monkeypatch):
    monkeypatch.setattr("verl_kernel.rollout.preflight.tokenizer_of", lambda config: Template())
    chosen = [f"data.{split}_files={folder}/{name}.parquet" for split, name in files.items()]
    with refused(*words, by=DataError):
        check_prompts(config(folder, *chosen))
    check_prompts(config(folder, *chosen, "data.filter_overlong_prompts=false"))
    check_prompts(config(folder, *chosen, "data.max_prompt_length=2000"))


@pytest.mark.parametrize(("overrides", "words"), [
    (("data.max_response_length=20",), ("data.max_response_length is 20", "10 tokens, in which no program fits")),
    (("kernelgym.turn_tokens=20",), ("kernelgym.turn_tokens 20", "give it 64 or more")),
    (("actor_rollout_ref.rollout.max_model_len=1000",), ("max_model_len is 1000", "256 + 1152", "set it to 1408")),
])  # fmt: skip
def test_lengths_without_room_are_refused(folder, overrides, words):
    with refused(*words, by=ConfigError):
        check_lengths(config(folder, *overrides))


@pytest.mark.parametrize("overrides", [
    (), ("actor_rollout_ref.rollout.max_model_len=null",), ("data.max_response_length=128",),
    ("kernelgym.max_turns=1", "data.max_response_length=64"),
])  # fmt: skip
def test_lengths_with_room_pass(folder, overrides):
    check_lengths(config(folder, *overrides))


@pytest.mark.slow
def test_a_logger_that_verl_lacks_is_refused(folder):
    with refused("trainer.logger is 'wand'; did you mean wandb? ", by=ConfigError):
        check_backends(config(folder, "trainer.logger=[console,wand]"))


def test_a_loggers_package_must_be_installed(folder, monkeypatch):
    monkeypatch.setitem(placement.LOGGERS, "wandb", "no_such_package")
    made = config(folder, "trainer.logger=[console,wandb]")
    with refused("trainer.logger names wandb", "pip install no_such_package", by=EnvironmentNotReady):
        list(check_loggers(made, CPU))
    assert list(check_loggers(made, described("8xH100-80GB"))) == []


@pytest.mark.parametrize(("override", "words"), [
    ("+data.max_respons_length=20", "did you mean data.max_response_length? "),
    ("+trainer.loger=[wandb]", "did you mean trainer.logger? "),
    ("+actor_rollout_ref.actor.grad_clips=1", "did you mean actor_rollout_ref.actor.grad_clip? "),
])  # fmt: skip
def test_a_slip_behind_a_plus_is_refused(folder, override, words):
    made = config(folder, override)
    with refused(override[1:].partition("=")[0], words, "remove it", by=ConfigError):
        check_unread(made)
    # Code of the user's own may read what it likes.
    check_unread(config(folder, override, "data.custom_cls.path=mine.py"))


@pytest.mark.parametrize("override", [
    # Keys that verl's files name, that another value refers to, and those of nodes that verl passes on.
    *("+trainer.wandb_proxy=http://proxy", "+trainer.mine=1", "+mine=3"),
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.enable_prefix_cachin=true", "+ray_kwargs.ray_init.num_gpu=1",
    "+data.max_prompt_lengths=100 data.max_prompt_length=${data.max_prompt_lengths}",
])  # fmt: skip
def test_a_key_that_somebody_reads_passes(folder, override):
    check_unread(config(folder, *override.split()))


def test_a_key_that_nobody_reads_is_listed(folder):
    assert list(unread(config(folder, "+trainer.nothing_like_it=3"), CPU)) == [
        "trainer.nothing_like_it, a key that neither verl nor verl_kernel reads"
    ]
    assert list(unread(config(folder), CPU)) == []


LONG, LORA = "data.max_response_length=24576", "actor_rollout_ref.model.lora_rank=32"


def notes(*overrides: str, gpus: str, size: str = "8b") -> list[str]:
    path = f"actor_rollout_ref.model.path=hkust-nlp/drkernel-{size}"
    return list(check_memory(composed("kernel_trloo", path, *overrides), described(gpus)))


def test_a_gpu_that_holds_no_trainer_is_told_of():
    (note,) = notes(LONG, gpus="8xA100-40GB")
    assert "a trainer's GPU needs" in note
    assert note.endswith("GB of 40")
    assert notes(gpus="8xH100-80GB") == notes(LONG, LORA, gpus="8xA100-40GB") == []
    with refused("does not hold the model's", by=ConfigError):
        notes(gpus="8xA100-40GB", size="14b")


@pytest.mark.parametrize(("text", "words"), [
    ("8xH900-80GB", ("no GPU called H900 is known", "as in 8xGPU-80GB")), ("8xH20O-80GB", ("did you mean H20? ",)),
    ("8xH100-0GB", ("no GPU has 0 GB",)), ("8xH100-80000GB", ("no GPU has 80000 GB",)),
])  # fmt: skip
def test_a_gpu_that_does_not_exist_is_refused(text, words):
    with refused(text, *words, by=ConfigError):
        described(text)


def test_any_other_gpu_has_a_name():
    assert described("2x8xGPU-96GB").gpu_mb == 96_000
