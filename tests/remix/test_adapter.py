# SPDX-License-Identifier: Apache-2.0
"""The exported adapter against the module that it comes from, loaded by PEFT as verl calls it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from tests.remix.modules import fill, language_model, options
from verl_kernel.errors import ConfigError
from verl_kernel.remix.adapter import common_choice, export, prompt_choice
from verl_kernel.remix.layers import apply_remix

TOKENS = torch.arange(2, 18).view(2, 8)


def loaded_by_verl(kind: str, folder: Path) -> PeftModel:
    """verl's own method on a fresh copy of the model, with the two settings that it reads."""
    settings = SimpleNamespace(lora_adapter_path=str(folder), use_shm=False)
    return FSDPEngine._build_lora_module(SimpleNamespace(model_config=settings), language_model(kind))


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("scale", ["lora", "rslora"])
def test_the_adapter_answers_as_the_module_does(tmp_path, kind, scale):
    model = language_model(kind)
    base = model(input_ids=TOKENS).logits
    routing = apply_remix(model, options(router="prompt", scale=scale), key_width=3)
    fill(routing)
    for number, key in enumerate(torch.eye(3)):
        with routing.run("topk", keys=key.expand(2, -1)):
            wanted = model(input_ids=TOKENS).logits
        export(routing, prompt_choice(routing, key), tmp_path / str(number), "somewhere")
        peft = loaded_by_verl(kind, tmp_path / str(number))
        assert (wanted - base).abs().max() > 0.1
        assert (peft(input_ids=TOKENS).logits - wanted).abs().max() < 1e-5
    trained = {name for name, weight in peft.named_parameters() if weight.requires_grad}
    assert len(trained) == 2 * 2 * 3
    assert all("lora_" in name for name in trained)
    peft(input_ids=TOKENS, labels=TOKENS).loss.backward()
    assert all(weight.grad.any() for weight in peft.parameters() if weight.requires_grad)


def test_it_survives_being_saved_and_loaded_by_peft_again(tmp_path):
    model = language_model()
    routing = apply_remix(model, options(router="prompt"))
    fill(routing)
    export(routing, prompt_choice(routing, torch.ones(1)), tmp_path / "one")
    first = PeftModel.from_pretrained(language_model(), str(tmp_path / "one"))
    first.save_pretrained(str(tmp_path / "two"))
    second = PeftModel.from_pretrained(language_model(), str(tmp_path / "two"))
    assert torch.equal(first(input_ids=TOKENS).logits, second(input_ids=TOKENS).logits)
    config = json.loads((tmp_path / "one" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["use_rslora"]) == (4, 4, False)


def test_a_router_is_exported_as_its_most_frequent_choice(tmp_path):
    model = language_model()
    routing = apply_remix(model, options(router="layer", chosen=1))
    fill(routing)
    with routing.run("topk", prompt=torch.ones_like(TOKENS, dtype=torch.bool)) as run:
        model(input_ids=TOKENS)
    name = "model.layers.1.mlp.down_proj"
    gates = run.selections[name].gates
    gates[:] = torch.tensor([[True, False, False, False], [True, False, False, False]])
    others = [selection.gates for other, selection in run.selections.items() if other != name]
    agree = 2 + sum(2 if torch.equal(gates[0], gates[1]) else 1 for gates in others)
    choice, share = common_choice([run])
    assert choice[name] == [0]
    assert share == pytest.approx(agree / 12)
    export(routing, choice, tmp_path / "adapter")
    with routing.run("fixed", choice=choice):
        wanted = model(input_ids=TOKENS).logits
    peft = PeftModel.from_pretrained(language_model(), str(tmp_path / "adapter"))
    assert (peft(input_ids=TOKENS).logits - wanted).abs().max() < 1e-5


def test_a_layer_s_router_has_no_choice_for_a_key():
    routing = apply_remix(language_model(), options(router="layer"))
    with pytest.raises(ConfigError, match=r"remix\.router is layer"):
        prompt_choice(routing, torch.ones(1))
    with pytest.raises(ConfigError, match=r"held_out is 0"):
        common_choice([])


@pytest.mark.parametrize("chosen", [[], [0], [1, 1], [0, 4]])
def test_a_choice_that_is_no_subset_is_refused(tmp_path, chosen):
    routing = apply_remix(language_model(), options(router="prompt"))
    with pytest.raises(ConfigError, match="it must be 2 different numbers below 4"):
        export(routing, dict.fromkeys(routing.layers, chosen), tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
