# SPDX-License-Identifier: Apache-2.0
"""Pins of verl that ReMix and its adapters lean on."""

from __future__ import annotations

import inspect

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.workers.config import HFModelConfig
from verl.workers.engine.fsdp import transformer_impl


def test_the_sft_dataset_takes_what_we_give_it() -> None:
    parameters = inspect.signature(MultiTurnSFTDataset).parameters
    assert list(parameters)[:3] == ["parquet_files", "tokenizer", "config"]
    source = inspect.getsource(MultiTurnSFTDataset)
    assert "NO_PADDING" in source
    assert "self.dataframe = " in source
    for key in ("pad_mode", "truncation", "max_length"):
        assert f'config.get("{key}"' in source


def test_an_adapter_is_loaded_where_lora_rank_is_positive() -> None:
    fields = HFModelConfig.__dataclass_fields__
    assert fields["lora_rank"].default == 0
    assert fields["lora_adapter_path"].default is None
    assert "lora" in fields
    source = inspect.getsource(transformer_impl.FSDPEngine)
    assert "self._is_lora = self.model_config.lora_rank > 0" in source
    assert "PeftModel.from_pretrained(module, local_adapter_path, is_trainable=True)" in source


def test_lora_merge_sends_merged_weights() -> None:
    source = inspect.getsource(transformer_impl.FSDPEngine.get_per_tensor_param)
    assert 'self.model_config.lora.get("merge", False)' in source
    assert "return self._merged_lora_per_tensor_param(), None" in source
