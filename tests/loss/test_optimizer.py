# SPDX-License-Identifier: Apache-2.0
import logging
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from verl_kernel.loss.optimizer import SkippingAdamW

SETTINGS = {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.5}
GRADIENTS = [[1.0, -2.0], [0.5, 0.0], [0.0, 0.0], [0.0, 3.0]]


def walk(kind: type[torch.optim.Optimizer], gradients: list[list[float]]) -> list[list[float]]:
    """The weights after each step."""
    weights = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
    optimizer, path = kind([weights], **SETTINGS), []
    for gradient in gradients:
        weights.grad = torch.tensor(gradient)
        optimizer.step()
        path.append(weights.tolist())
    return path


def test_a_step_without_gradient_leaves_weights_alone(caplog):
    with caplog.at_level(logging.WARNING):
        path = walk(SkippingAdamW, GRADIENTS)
    without = walk(torch.optim.AdamW, [GRADIENTS[0], GRADIENTS[1], GRADIENTS[3]])
    assert path == [without[0], without[1], without[1], without[2]]
    assert "1 such steps so far" in caplog.text


def test_parameters_without_any_gradient_are_no_gradient():
    optimizer = SkippingAdamW([torch.nn.Parameter(torch.ones(2))], **SETTINGS)
    optimizer.step()
    assert optimizer.skipped == 1


def step_of(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    weights = torch.nn.Parameter(torch.ones(2))
    optimizer = SkippingAdamW([weights], **SETTINGS)
    for shards in ([0.0, 1.0], [0.0, 0.0]):
        weights.grad = torch.full((2,), shards[rank])
        optimizer.step()
    Path(folder, str(rank)).write_text(f"{optimizer.skipped}")
    torch.distributed.barrier()  # gloo aborts a rank whose peer hangs up while it still connects
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_decide_alike(tmp_path):
    mp.spawn(step_of, args=(str(tmp_path),), nprocs=2)
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["1", "1"]


def test_the_recipe_builds_it_through_verl():
    # Imported here, because the ranks above import this module and need none of it.
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config.optimizer import build_optimizer

    from tests.config.composed import composed

    options = omega_conf_to_dataclass(composed("kernel_trloo").actor_rollout_ref.actor.optim)
    optimizer = build_optimizer([torch.nn.Parameter(torch.ones(2))], options)
    assert isinstance(optimizer, SkippingAdamW)
    assert optimizer.param_groups[0]["betas"] == tuple(options.betas)
