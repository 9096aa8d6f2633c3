# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.cpu_smollm2 import conversion
from recipes.cpu_smollm2.conversion import convert, read_vocabulary
from verl_kernel.errors import DataError, EnvironmentNotReady
from verl_kernel.rollout.turn_end import find_turn_end

pytest.importorskip("gguf", reason="the extra smollm2 is not installed")
from tests.smollm2.small_gguf import CONTROL, SYSTEM, TEMPLATE, TEXTS, write_gguf

AWKWARD = [*TEXTS, "range(0,\n        10)", "x  12 , y .", "<|im_start|>user\n1<|im_end|>\n", "é → 3"]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory):
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
    for text in AWKWARD:
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
    assert loaded.chat_template == TEMPLATE
    assert loaded.model_max_length == 2048
    assert SYSTEM in loaded.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    end = find_turn_end(loaded)
    assert (end.token_id, end.opens_next, loaded.decode(end.behind)) == (2, False, "\n")


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path):
    write_gguf(tmp_path / "other.gguf", pre="llama-bpe")
    with pytest.raises(DataError, match="other.gguf holds a tokenizer of kind gpt2/llama-bpe"):
        read_vocabulary(tmp_path / "other.gguf")


def test_a_missing_reader_is_one_sentence(monkeypatch):
    monkeypatch.setattr(conversion, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentNotReady, match="package gguf is missing.*extra smollm2"):
        conversion.check_reader()
