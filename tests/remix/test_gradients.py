# SPDX-License-Identifier: Apache-2.0
"""The routers' gradient, by enumeration of all that can be drawn: without bias, and as the formula demands.

Where activation checkpointing recomputes layers during the backward pass, it is the same.
"""

from collections.abc import Callable
from itertools import permutations, product

import pytest
import torch

from tests.remix.modules import Chain, chain, fill, language_model, options
from verl_kernel.errors import ConfigError
from verl_kernel.remix.batches import Row, collate, row_losses
from verl_kernel.remix.layers import Routing, apply_remix
from verl_kernel.remix.loss import leave_one_out, remix_loss

X = torch.randn(1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Weight = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def all_selections(model: Chain, routing: Routing) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss, log-probability and its variant without renormalisation, for each selection of both layers."""
    losses, log_q, naive = [], [], []
    for orders in product(list(permutations(range(4), 2)), repeat=2):
        with routing.run("fixed", choice=dict(zip(routing.layers, orders, strict=True))) as run:
            losses.append(model(X).square().sum().detach())
        log_q.append(routing.log_probability(run)[0])
        softmax = [
            torch.nn.functional.linear(found.routed, routing.layers[name].router)
            .log_softmax(-1)[0, found.order[0]]
            .sum()
            for name, found in run.selections.items()
        ]
        naive.append(torch.stack(softmax).sum())
    return torch.stack(losses), torch.stack(log_q), torch.stack(naive)


def gradient(value: torch.Tensor, routing: Routing) -> torch.Tensor:
    routers = [layer.router for layer in routing.layers.values()]
    return torch.cat([part.flatten() for part in torch.autograd.grad(value, routers, retain_graph=True)])


def expected(
    losses: torch.Tensor, log_q: torch.Tensor, scored: torch.Tensor, draws: int, estimate: Weight
) -> torch.Tensor:
    """Sum over all tuples of `draws` selections of their probability times the estimate, whose gradient is meant."""
    total = torch.zeros((), dtype=torch.float64)
    for indices in torch.cartesian_prod(*[torch.arange(len(losses))] * draws).split(4096):
        probability = log_q.detach()[indices].sum(1).exp()
        total = total + (probability * estimate(losses[indices].T, scored[indices].T)).sum()
    return total


def weighted(losses: torch.Tensor, scored: torch.Tensor) -> torch.Tensor:
    """`leave_one_out` without its sum over rows, written out for all tuples at once."""
    return ((losses - losses.mean(0)) * scored).sum(0) / (len(losses) - 1)


def test_the_tests_estimate_is_the_packages():
    losses, scored = torch.rand(3, 7, dtype=torch.float64), torch.rand(3, 7, dtype=torch.float64)
    per_tuple = torch.stack([leave_one_out(losses[:, [i]], scored[:, [i]]) for i in range(losses.shape[1])])
    assert torch.allclose(weighted(losses, scored), per_tuple, atol=1e-15)


@pytest.mark.parametrize("draws", [2, 3])
def test_the_estimate_is_unbiased_over_both_layers(draws):
    model, routing = chain()
    losses, log_q, naive = all_selections(model, routing)
    if draws == 3:  # one layer's selections given the other's first: 12^3 tuples instead of 144^3
        losses, log_q, naive = losses[:12], log_q[:12], naive[:12]
        first = log_q.logsumexp(0)
        log_q, naive = log_q - first, naive - first
    assert log_q.exp().sum().item() == pytest.approx(1, abs=1e-12)
    truth = gradient((log_q.exp() * losses).sum(), routing)
    found = gradient(expected(losses, log_q, log_q, draws, weighted), routing)
    assert truth.abs().max() > 1e-3
    assert (found - truth).abs().max() < 1e-12
    wrong = gradient(expected(losses, log_q, naive, draws, weighted), routing)
    assert (wrong - truth).abs().max() > 1e-3


def test_the_loss_has_the_exact_gradients():
    model, routing = chain()
    x = torch.randn(3, 3, dtype=torch.float64)
    loss, rows = remix_loss(routing, lambda: model(x).square().sum(1), 4, generator=torch.Generator().manual_seed(5))
    loss.backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    generator, runs, values = torch.Generator().manual_seed(5), [], []
    for _ in range(4):
        with routing.run("sample", generator=generator) as run:
            values.append(model(x).square().sum(1))
        runs.append(run)
    losses = torch.stack(values)
    log_q = torch.stack([routing.log_probability(run) for run in runs])
    (losses.sum() / 4 + leave_one_out(losses.detach(), log_q)).backward()
    assert torch.allclose(rows, losses.detach(), atol=1e-14)
    assert loss.item() == pytest.approx(losses.mean(0).sum().item(), abs=1e-12)
    wanted = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert found.keys() == wanted.keys()
    assert len(found) == 6
    for name, grad in wanted.items():
        assert torch.allclose(found[name], grad, atol=1e-12), name
        assert grad.abs().max() > 1e-4, name


def test_micro_batches_in_turn_have_the_gradient_of_their_sum():
    model, routing = chain()
    parts = torch.randn(4, 3, dtype=torch.float64).split(2)

    def losses() -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(2)
        return [remix_loss(routing, lambda x=x: model(x).square().sum(1), 3, generator=generator).loss for x in parts]

    sum(losses()).backward()
    trained = [weight for layer in routing.layers.values() for weight in (layer.router, layer.lora_a, layer.lora_b)]
    together = [weight.grad.clone() for weight in trained]
    model.zero_grad()
    for loss in losses():
        loss.backward()
    for weight, grad in zip(trained, together, strict=True):
        assert torch.allclose(weight.grad, grad, atol=1e-12)


def test_one_selection_is_refused():
    model, routing = chain()
    with pytest.raises(ConfigError, match=r"remix\.selections is 1"):
        remix_loss(routing, lambda: model(X).sum(1), 1)


def test_uniform_choice_trains_loras_only():
    model, routing = chain()
    remix_loss(routing, lambda: model(X).square().sum(1), 1, mode="uniform").loss.backward()
    for layer in routing.layers.values():
        assert layer.router.grad is None
        assert layer.lora_a.grad.any()


def model_gradients(router: str, checkpointing: bool) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients of one loss, and how often a target layer was called for each of its forward passes."""
    model = language_model().double().train()
    routing = apply_remix(model, options(router=router), key_width=2)
    fill(routing)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    tokens = torch.arange(2, 14).view(2, 6)
    learned = torch.tensor([False, False, False, True, True, True])
    batch = collate([Row(row, learned, key) for key, row in enumerate(tokens)], 2)
    calls = []
    routing.layers["model.layers.0.mlp.up_proj"].register_forward_hook(lambda *_: calls.append(1))
    loss, _ = remix_loss(
        routing, lambda: row_losses(model, batch, 6), 3, prompt=batch.prompt, keys=batch.keys,
        generator=torch.Generator().manual_seed(4),
    )  # fmt: skip
    loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}, len(calls)


@pytest.mark.parametrize("router", ["layer", "prompt"])
def test_checkpointing_changes_no_gradient(router):
    kept, calls = model_gradients(router, checkpointing=False)
    recomputed, more_calls = model_gradients(router, checkpointing=True)
    assert (calls, more_calls) == (3, 6)
    assert kept.keys() == recomputed.keys()
    assert len(kept) == 2 * 3 * 3
    for name, grad in kept.items():
        assert grad.abs().max() > 0, name
        assert torch.equal(recomputed[name], grad), name
