# SPDX-License-Identifier: Apache-2.0
"""What a model with ReMix layers draws, answers and refuses; ordered subsets against the definition in loops."""

import math
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.remix.modules import Chain, chain, fill, language_model, options
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.remix.layers import apply_remix, draw, log_probability, membership, top
from verl_kernel.remix.loss import remix_loss
from verl_kernel.remix.options import ReMixOptions

CHI_SQUARE_999_DF_11 = 31.264
"""A right sampler stays below it in 999 of 1000 seeds; the seed is fixed."""


def naive(logits: list[float], order: tuple[int, ...]) -> float:
    """Sum over j of log q_j - log(1 - the q of those drawn before j)."""
    weights = [math.exp(logit) for logit in logits]
    q = [weight / sum(weights) for weight in weights]
    return sum(math.log(q[i]) - math.log(1 - sum(q[before] for before in order[:j])) for j, i in enumerate(order))


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.data())
def test_log_probability_is_the_paper_s_sum(logits, data):
    size = data.draw(st.integers(1, len(logits)))
    order = tuple(data.draw(st.permutations(range(len(logits))))[:size])
    found = log_probability(torch.tensor(logits, dtype=torch.float64), torch.tensor(order))
    assert found.item() == pytest.approx(naive(logits, order), abs=1e-9)


def test_drawn_frequencies_are_those_of_the_probabilities():
    logits, draws = torch.tensor([1.0, 0.0, -0.5, 0.7]), 50_000
    orders = list(permutations(range(4), 2))
    drawn = draw(logits.expand(draws, -1), 2, torch.Generator().manual_seed(3))
    counts = torch.tensor([(drawn == torch.tensor(order)).all(1).sum() for order in orders])
    expected = draws * log_probability(logits.double().expand(len(orders), -1), torch.tensor(orders)).exp()
    assert counts.sum() == draws
    assert ((counts - expected) ** 2 / expected).sum().item() < CHI_SQUARE_999_DF_11


def test_top_is_in_order_and_takes_the_first_of_equals():
    assert top(torch.tensor([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0]]), 2).tolist() == [[1, 2], [0, 1]]


def test_membership_marks_the_subset():
    assert membership(torch.tensor([[2, 0]]), 4).tolist() == [[True, False, True, False]]


X = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def test_a_fresh_model_answers_as_its_base():
    torch.manual_seed(0)
    model = Chain()
    base = model(X)
    routing = apply_remix(model, options(), targets=("one", "two"))
    with routing.run("sample"):
        assert torch.equal(model(X), base)


@pytest.mark.parametrize("mode", ["sample", "topk", "uniform"])
def test_each_row_uses_its_own_loras_with_the_constant_weight(mode):
    _, routing = chain()
    layer = routing.layers["one"]
    with routing.run(mode) as run:
        found = layer(X)
    chosen = run.selections["one"].order
    assert len(set(map(tuple, chosen.tolist()))) > 1
    a, b = layer.lora_a.view(4, 2, 3), layer.lora_b.view(3, 4, 2)
    for row, x in enumerate(X):
        wanted = layer.base(x) + sum(2 / (2 * 2) * b[:, i] @ (a[i] @ x) for i in chosen[row].tolist())
        assert torch.allclose(found[row], wanted, atol=1e-12)


@pytest.mark.parametrize(("scale", "omega"), [("lora", 2 / 12), ("rslora", 2 / math.sqrt(12))])
def test_omega_is_one_of_the_papers_two(scale, omega):
    assert options(chosen=3, rank=4, scale=scale).omega == pytest.approx(omega)


def test_choosing_all_is_deterministic_and_leaves_routers_alone():
    model, routing = chain(loras=3, chosen=3)
    answers = []
    for seed in range(3):
        with routing.run("sample", generator=torch.Generator().manual_seed(seed)):
            answers.append(model(X))
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[1], answers[2])
    layer = routing.layers["one"]
    with routing.run("sample"):
        wanted = layer.base(X) + 2 / 6 * X @ layer.lora_a.T @ layer.lora_b.T
        assert torch.allclose(layer(X), wanted, atol=1e-12)
    remix_loss(routing, lambda: model(X).square().sum(1), 4).loss.backward()
    assert all(not layer.router.grad.any() for layer in routing.layers.values())


def test_one_lora_is_peft_s():
    torch.manual_seed(0)
    plain = Chain()
    model = Chain()
    model.load_state_dict(plain.state_dict())
    routing = apply_remix(model, options(loras=1, chosen=1, rank=2), targets=("one", "two"))
    fill(routing)
    omega = routing.options.omega
    peft = get_peft_model(plain, LoraConfig(r=2, lora_alpha=omega * 2, target_modules=["one", "two"])).double()
    for name, layer in routing.layers.items():
        twin = peft.get_submodule(f"base_model.model.{name}")
        twin.lora_A["default"].weight.data.copy_(layer.lora_a)
        twin.lora_B["default"].weight.data.copy_(layer.lora_b)
    remix_loss(routing, lambda: model(X).square().sum(1), 2).loss.backward()
    peft(X).square().sum().backward()
    with routing.run("sample"):
        assert torch.allclose(model(X), peft(X), atol=1e-12)
    for name, layer in routing.layers.items():
        twin = peft.get_submodule(f"base_model.model.{name}")
        assert torch.allclose(layer.lora_a.grad, twin.lora_A["default"].weight.grad, atol=1e-12)
        assert torch.allclose(layer.lora_b.grad, twin.lora_B["default"].weight.grad, atol=1e-12)


def test_only_loras_and_routers_are_trained():
    model, routing = chain()
    remix_loss(routing, lambda: model(X).square().sum(1), 2).loss.backward()
    for name, weight in model.named_parameters():
        trained = name.rpartition(".")[2] in ("lora_a", "lora_b", "router")
        assert (weight.grad is not None) == weight.requires_grad == trained


def test_the_router_reads_the_prompt_and_nothing_behind_it():
    model = language_model()
    routing = apply_remix(model, options())
    fill(routing)
    tokens = torch.tensor([[5, 6, 7, 8, 9, 10]])
    other = torch.tensor([[5, 6, 7, 30, 31, 32]])
    prompt = torch.tensor([[True, True, True, False, False, False]])
    logits, read = [], []
    for words in (tokens, other):
        with routing.run("topk", prompt=prompt) as run:
            logits.append(model(input_ids=words).logits)
        read.append(run.selections)
    for name, selection in read[0].items():
        assert torch.equal(selection.order, read[1][name].order)
        assert torch.allclose(selection.routed, read[1][name].routed, atol=1e-6)
    assert torch.allclose(logits[0][:, :3], logits[1][:, :3], atol=1e-5)


def test_generation_with_a_cache_keeps_what_the_prompt_chose():
    model = language_model()
    routing = apply_remix(model, options())
    fill(routing)
    tokens = torch.tensor([[5, 6, 7], [8, 9, 10]])
    with routing.run("topk", prompt=torch.ones_like(tokens, dtype=torch.bool)) as run:
        out = model.generate(tokens, max_new_tokens=5, do_sample=False)
        chosen = {name: found.order.clone() for name, found in run.selections.items()}
    prompt = torch.zeros_like(out, dtype=torch.bool)
    prompt[:, :3] = True
    with routing.run("topk", prompt=prompt) as run:
        logits = model(input_ids=out, attention_mask=torch.ones_like(out)).logits
    assert all(torch.equal(run.selections[name].order, order) for name, order in chosen.items())
    assert logits[:, 2:-1].argmax(-1).tolist() == out[:, 3:].tolist()


def test_bfloat16_stays_bfloat16_and_probabilities_do_not():
    model = nn.Sequential(nn.Linear(4, 4).bfloat16())
    routing = apply_remix(model, options(), targets=("0",))
    with routing.run("sample") as run:
        assert model(torch.randn(2, 4).bfloat16()).dtype == torch.bfloat16
    assert routing.log_probability(run).dtype == torch.float32


def test_a_call_outside_of_a_pass_is_refused():
    model, routing = chain()
    with pytest.raises(ConfigError, match="outside of Routing.run"):
        model(X)
    with routing.run("sample"), pytest.raises(ConfigError, match="inside another"), routing.run("topk"):
        pass
    with pytest.raises(ConfigError, match="outside of Routing.run"):
        model(X)


def test_other_rows_in_the_same_pass_are_refused():
    model, routing = chain()
    with routing.run("sample"):
        model(X)
        with pytest.raises(DataError, match="chose for 5 rows and is called with 2"):
            model(X[:2])


@pytest.mark.parametrize(("router", "missing"), [("prompt", "keys"), ("layer", "prompt, a mask")])
def test_a_router_without_what_it_reads_is_refused(router, missing):
    model = language_model()
    routing = apply_remix(model, options(router=router))
    with routing.run("sample"), pytest.raises(DataError, match=missing):
        model(input_ids=torch.tensor([[1, 2, 3]]))


def test_targets_that_are_no_linear_layers_are_refused():
    with pytest.raises(ConfigError, match=r"remix\.targets names 'three'"):
        apply_remix(Chain(), options(), targets=("one", "three"))
    with pytest.raises(ConfigError, match=r"remix\.targets names 'embed_tokens'"):
        apply_remix(language_model(), options(), targets=("embed_tokens",))


def test_an_unknown_scale_is_refused():
    with pytest.raises(ConfigError, match=r"remix\.scale is 'mean'"):
        ReMixOptions(scale="mean")
