# SPDX-License-Identifier: Apache-2.0
"""A model whose turns have no end is refused before anything starts."""

from contextlib import nullcontext

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.config.composed import composed
from tests.data.published_files import programs
from tests.rollout.chat_tokenizers import PLAIN_TEMPLATE, tokenizer
from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.errors import ConfigError
from verl_kernel.generated_tasks.tokenizer import CHAT_TEMPLATE
from verl_kernel.preflight.checks import RULES
from verl_kernel.quickstart.options import WarmStart
from verl_kernel.quickstart.warm_start import build_model
from verl_kernel.rollout.preflight import check_thinking, check_turn_end

SILENT = {"enable_thinking": False}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model whose chat template marks turns by words."""
    folder = tmp_path_factory.mktemp("model")
    trained = tokenizer([], PLAIN_TEMPLATE)
    build_model(WarmStart(layers=2, width=64, heads=2), trained, seed=0).save_pretrained(folder)
    trained.save_pretrained(folder)
    return folder


def config(path: object, **gym: object) -> DictConfig:
    model = {"path": str(path), "tokenizer_path": None, "custom_chat_template": None}
    return OmegaConf.create({"actor_rollout_ref": {"model": model}, "kernelgym": gym, "data": {}})


def test_a_template_without_an_end_is_refused(plain):
    sentence = "marks no end of a turn: give actor_rollout_ref.model.custom_chat_template"
    with pytest.raises(ConfigError, match=sentence) as error:
        check_turn_end(config(plain))
    assert str(plain) in str(error.value)
    mended = config(plain)
    mended.actor_rollout_ref.model.custom_chat_template = CHAT_TEMPLATE
    check_turn_end(mended)
    split = config("/nowhere")
    split.actor_rollout_ref.model.tokenizer_path = str(plain)
    with pytest.raises(ConfigError, match=sentence):
        check_turn_end(split)


def test_a_stop_token_that_the_model_does_not_have_is_refused(plain):
    wrong = config(plain, stop_token_ids=[151645])
    wrong.actor_rollout_ref.model.custom_chat_template = CHAT_TEMPLATE
    with pytest.raises(ConfigError, match="kernelgym.stop_token_ids holds 151645"):
        check_turn_end(wrong)


def test_the_templates_options_are_heard(plain):
    both = config(plain)
    both.actor_rollout_ref.model.custom_chat_template = (
        "{% if brief %}" + PLAIN_TEMPLATE + "{% else %}" + CHAT_TEMPLATE + "{% endif %}"
    )
    check_turn_end(both)
    both.data.apply_chat_template_kwargs = {"brief": True}
    with pytest.raises(ConfigError, match="no end of a turn"):
        check_turn_end(both)


@pytest.mark.parametrize("path", ["/nowhere", "some-lab/some-model"])
def test_a_model_that_is_not_here_yet_is_left_to_the_rollout(path):
    check_turn_end(config(path))


@pytest.mark.parametrize(("agent", "default", "checked"), [
    ("kernel_agent", "single_turn_agent", True),
    ("single_turn_agent", "kernel_agent", False),
    (None, "kernel_agent", True),
    (None, "single_turn_agent", False),
])  # fmt: skip
def test_a_multi_turn_start_checks_the_template(plain, tmp_path, agent, default, checked):
    path = tmp_path / "train.parquet"
    messages = [{"role": "user", "content": "Write a kernel."}]
    row = make_row(messages, programs()[0].reference, data_source="own", task_id="one", split="train", index=0)
    write_rows([row | {"agent_name": agent}], path)
    started = config(plain)
    started.data = {"train_files": str(path), "val_files": str(path)}
    OmegaConf.update(started, "actor_rollout_ref.rollout.agent.default_agent_loop", default)
    rule = next(rule for rule in RULES if rule.check is check_turn_end)
    assert rule.applies(started) is checked


QWEN3 = CHAT_TEMPLATE + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}"
R1 = CHAT_TEMPLATE + "{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}"


@pytest.mark.parametrize(("path", "template", "thinks", "asked"), [
    (None, QWEN3, True, {}), (None, QWEN3, False, SILENT), (None, CHAT_TEMPLATE, False, {}), (None, R1, True, SILENT),
    ("Qwen/Qwen3-8B", None, True, {}), ("Qwen/Qwen3-8B", None, False, SILENT), ("Qwen/Qwen3-30B-A3B", None, True, {}),
    ("Qwen/Qwen3-4B-Instruct-2507", None, False, {}), ("Qwen/Qwen3-4B-Thinking-2507", None, True, SILENT),
])  # fmt: skip
def test_a_model_that_thinks_needs_room(plain, path, template, thinks, asked):
    mine = config(path or plain, max_turns=3)
    mine.actor_rollout_ref.model.custom_chat_template = template
    mine.data = {"max_response_length": 12288, "apply_chat_template_kwargs": asked}
    with pytest.raises(ConfigError, match="4096 tokens: set .*_length to 24576") if thinks else nullcontext():
        check_thinking(mine)
    mine.trainer = {"v1": {"sampler": {"sampler_kwargs": {"least_programs": 0}}}}
    check_thinking(mine)
    mine.trainer, mine.data.max_response_length = {}, 24576
    check_thinking(mine)


def test_the_recipes_think_only_where_they_have_the_room():
    for recipe in ("kernel_trloo", "drkernel_8b"):
        check_thinking(composed(recipe, "actor_rollout_ref.model.path=Qwen/Qwen3-8B"))
