# SPDX-License-Identifier: Apache-2.0
"""The SFT stage on a tiny language model: it learns, it is the paper's two routers, and a stopped run goes on."""

import json
from pathlib import Path

import pytest
import torch

from tests.remix.modules import language_model, options
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.remix.batches import TokenRow, collate
from verl_kernel.remix.layers import Routing, apply_remix
from verl_kernel.remix.options import TuningOptions
from verl_kernel.remix.tuning import measure, tune


class Dialects:
    """Two ways to answer the same words: key 0 counts on by one from the last word, key 1 by two."""

    def __init__(self, swapped: bool = False) -> None:
        self.keys = ["one", "two"]
        self.swapped = swapped

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> TokenRow:
        key, start = index % 2, 3 + index % 7
        answer = torch.arange(1, 6) * (key + 1) + start
        tokens = torch.cat([torch.tensor([2, start]), answer])
        return TokenRow(tokens, torch.arange(len(tokens)) >= 2, 1 - key if self.swapped else key)


def small(**more: object) -> TuningOptions:
    return TuningOptions(**{"steps": 6, "batch_size": 4, "micro_batch_size": 2, "held_out": 8, "selections": 2, **more})


def trained(folder: Path, tuning: TuningOptions, router: str = "prompt") -> tuple[torch.nn.Module, Routing]:
    torch.manual_seed(0)
    model = language_model()
    routing = apply_remix(model, options(router=router), key_width=2)
    tune(model, routing, Dialects(), tuning, folder)
    return model, routing


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]


@pytest.mark.exhaustive
def test_two_dialects_are_learnt_and_told_apart(tmp_path):
    tuning = small(steps=120, batch_size=16, micro_batch_size=16, selections=4, learning_rate=2e-2)
    fresh = language_model()
    before, _ = measure(fresh, apply_remix(fresh, options(router="prompt"), key_width=2), Dialects(), tuning)
    model, routing = trained(tmp_path, tuning)
    after, runs = measure(model, routing, Dialects(), tuning)
    assert before > 3
    assert after < 0.5 * before
    confused, _ = measure(model, routing, Dialects(swapped=True), tuning)
    assert confused > 1.5 * after  # each key has LoRAs of its own
    gates = torch.cat([torch.cat([found.gates for found in run.selections.values()], 1) for run in runs])
    assert not torch.equal(gates[0], gates[1])


@pytest.mark.slow
@pytest.mark.parametrize("router", ["prompt", "layer"])
def test_a_stopped_run_ends_where_one_that_was_not_stopped_does(tmp_path, router):
    model, _ = trained(tmp_path / "whole", small(), router)
    torch.manual_seed(0)
    stopped = language_model()
    routing = apply_remix(stopped, options(router=router), key_width=2)

    def stop(step: int, loss: float) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(stopped, routing, Dialects(), small(save_every=2), tmp_path / "parts", on_step=stop)
    assert [line["step"] for line in lines(tmp_path / "parts")] == [1, 2, 3, 4, 5]
    again, _ = trained(tmp_path / "parts", small(), router)
    for name, weight in model.named_parameters():
        assert torch.equal(again.get_parameter(name), weight), name
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "whole")] == [1, 2, 3, 4, 5, 6]


def test_other_options_do_not_go_on_from_a_state(tmp_path):
    trained(tmp_path, small(steps=1))
    with pytest.raises(ConfigError, match=r"holds a run with learning_rate 0\.001 instead of 0\.5"):
        trained(tmp_path, small(learning_rate=0.5))


def test_data_that_cannot_fill_a_batch_are_refused(tmp_path):
    with pytest.raises(DataError, match="there are 40 rows, of which 38 are held out"):
        trained(tmp_path, small(held_out=38))
    with pytest.raises(ConfigError, match="must be a multiple of micro_batch_size, 3"):
        small(micro_batch_size=3)


def test_a_batch_s_prompt_ends_at_the_first_learnt_token():
    rows = [
        TokenRow(torch.tensor([5, 6, 7, 8, 9]), torch.tensor([False, False, True, False, True]), 1),
        TokenRow(torch.tensor([5, 6]), torch.tensor([False, True])),
    ]
    batch = collate(rows, 3)
    assert batch.prompt.int().tolist() == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert batch.attention.int().tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert batch.keys.tolist() == [[0, 1, 0], [1, 0, 0]]
