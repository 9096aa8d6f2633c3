# SPDX-License-Identifier: Apache-2.0
"""The engine `kernel_gloo`: what is packed and sent arrives as it was, and nobody waits for a worker that failed."""

import asyncio
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from verl_kernel.cpu.checkpoint_engine import OUTSIDE, GlooCheckpointEngine, pack, unpack
from verl_kernel.errors import InfraError

pytestmark = pytest.mark.timeout(300)

Weights = Iterator[tuple[str, torch.Tensor]]
BUCKET = 512
WAIT_S = 120.0
"""Longer than any test takes, shorter than the engine's own patience."""

# Children are forked from a process that has imported the engine, not from this one with its threads.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["verl_kernel.cpu.checkpoint_engine"])


def model(seed: int = 0) -> Weights:
    """Several dtypes and shapes: empty, scalar, tied, transposed, larger than a bucket, and many small ones."""
    numbers = torch.Generator().manual_seed(seed)
    embedding = torch.randn(40, 16, generator=numbers)
    yield "embedding", embedding
    yield "empty", torch.empty(0, 7, dtype=torch.bfloat16)
    yield "scalar", torch.tensor(seed, dtype=torch.int64)
    yield "mask", torch.tensor([True, False, True])
    for layer in range(20):
        yield f"{layer}.bf16", torch.randn(3, 5, generator=numbers).bfloat16()
        yield f"{layer}.fp32", torch.randn(2, 3, 4, generator=numbers).transpose(0, 2)
    yield "head", embedding
    yield "last_empty", torch.empty(0)


def raising(seed: int = 0) -> Weights:
    yield "big", torch.zeros(10 * BUCKET)
    raise KeyError("layer.7")


def dying(seed: int = 0) -> Weights:
    yield "big", torch.zeros(10 * BUCKET)
    os.kill(os.getpid(), signal.SIGKILL)


def worker(pipe: Connection, weights: Callable[[int], Weights] | None, updates: int) -> None:
    """A worker of its own process: a sender of `weights`, or without them a receiver."""
    engine = GlooCheckpointEngine(BUCKET, is_master=weights is not None)
    for update in range(updates):
        pipe.send(engine.prepare())
        try:
            engine.init_process_group(**pipe.recv())
            pipe.send(asyncio.run(work(engine, weights, update)))
        except (KeyError, RuntimeError, InfraError) as exc:
            pipe.send(f"{type(exc).__name__}: {exc}")
        engine.finalize()


async def work(engine: GlooCheckpointEngine, weights: Callable[[int], Weights] | None, update: int) -> object:
    if weights is not None:
        return await engine.send_weights(weights(update), global_steps=update)
    return digest([pair async for pair in engine.receive_weights(global_steps=update)])


def digest(weights: list[tuple[str, torch.Tensor]]) -> list[tuple]:
    return [(name, weight.shape, weight.dtype, weight.double().tolist()) for name, weight in weights]


@contextmanager
def started(weights: Callable[[int], Weights] | None, updates: int = 1) -> Iterator[Connection]:
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=worker, args=(there, weights, updates), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.join(WAIT_S)
        assert process.exitcode is not None, "the worker still waits"


def received(pipe: Connection) -> object:
    assert pipe.poll(WAIT_S)
    return pipe.recv()


def join(pipes: list[Connection]) -> None:
    """What verl's manager does before each update: ask all to prepare, number them, let them join."""
    trainer, rollout = GlooCheckpointEngine.build_topology(1, len(pipes) - 1, [received(pipe) for pipe in pipes])
    for i, pipe in enumerate(pipes):
        side, at = (trainer, 0) if i == 0 else (rollout, i - 1)
        pipe.send({key: values[at] for key, values in side.items()})


@pytest.mark.processes
def test_all_weights_arrive_in_every_rollout_at_each_update():
    with started(model, 2) as sender, started(None, 2) as one, started(None, 2) as other:
        for update in range(2):
            join([sender, one, other])
            expected = digest(list(model(update)))
            assert received(sender) is None
            assert received(one) == expected
            assert received(other) == expected


@pytest.mark.processes
def test_a_weight_that_cannot_be_produced_fails_on_both_sides():
    with started(raising) as sender, started(None) as rollout:
        join([sender, rollout])
        assert received(sender) == "KeyError: 'layer.7'"
        said = str(received(rollout))
        assert said.startswith(InfraError.__name__)
        assert "KeyError: 'layer.7'" in said


@pytest.mark.processes
def test_a_rollout_does_not_wait_for_a_trainer_that_died():
    with started(dying) as sender, started(None) as rollout:
        join([sender, rollout])
        # Where the trainer dies while they join, it is torch's error about the store that tells.
        assert str(received(rollout)).startswith(("RuntimeError", "DistNetworkError", "DistStoreError"))
        with pytest.raises(EOFError):
            received(sender)


@pytest.mark.processes
def test_a_trainer_does_not_wait_for_a_rollout_that_is_gone():
    with started(model) as sender:
        trainer, rollout = GlooCheckpointEngine.build_topology(1, 1, [received(sender), None])
        sender.send({key: values[0] for key, values in trainer.items()})
        # This process is the rollout, and leaves before anything is received.
        engine = GlooCheckpointEngine(BUCKET)
        engine.init_process_group(**{key: values[0] for key, values in rollout.items()})
        engine.finalize()
        assert str(received(sender)).startswith("RuntimeError")


def test_only_the_trainers_first_worker_sends():
    trainer, rollout = GlooCheckpointEngine.build_topology(3, 2, [("host", 7), None, None, None, None])
    assert trainer == {"rank": [0, OUTSIDE, OUTSIDE], "world_size": [3] * 3, "address": [("host", 7)] * 3}
    assert rollout == {"rank": [1, 2], "world_size": [3] * 2, "address": [("host", 7)] * 2}


def test_other_workers_produce_their_share_of_weights():
    engine, seen = GlooCheckpointEngine(BUCKET), []
    engine.init_process_group(OUTSIDE, 3, ("nowhere", 1))
    asyncio.run(engine.send_weights((name, seen.append(name) or weight) for name, weight in model()))
    assert seen == [name for name, _ in model()]


# Buckets: names, order, shapes, dtypes and every byte.

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool]
DTYPES += [torch.float64, torch.complex128]
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def of_bytes(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random bytes as a tensor: all values of the dtype, NaN with a payload too."""
    numbers = torch.Generator().manual_seed(seed)
    top = 2 if dtype == torch.bool else 256
    data = torch.randint(top, (torch.Size(shape).numel() * dtype.itemsize,), generator=numbers, dtype=torch.uint8)
    return data.view(dtype).view(shape)


def content(weight: torch.Tensor) -> bytes:
    return weight.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@given(st.lists(st.tuples(shapes, st.sampled_from(DTYPES), st.integers(0, 99)), max_size=12), st.integers(1, 200))
def test_weights_come_out_as_they_went_in(specs, bucket_size):
    weights = [(f"w{i}", of_bytes(*spec)) for i, spec in enumerate(specs)]
    out = [pair for bucket in pack(weights, bucket_size) for pair in unpack(bucket.entries, bucket.payload.clone())]
    assert [name for name, _ in out] == [name for name, _ in weights]
    for (_, got), (_, sent) in zip(out, weights, strict=True):
        assert (got.shape, got.dtype) == (sent.shape, sent.dtype)
        assert content(got) == content(sent)


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(1, 200))
@example([16, 0], 1)
def test_only_a_weight_alone_exceeds_the_size_of_a_bucket(sizes, bucket_size):
    weights = [(f"w{i}", torch.zeros(size, dtype=torch.uint8)) for i, size in enumerate(sizes)]
    buckets = list(pack(weights, bucket_size))
    for bucket in buckets:
        filled = [entry for entry in bucket.entries if math.prod(entry.shape)]  # what is empty has room anywhere
        assert len(bucket.payload) <= bucket_size or len(filled) == 1
    # No bucket could have taken the first weight of the next one.
    for bucket, following in pairwise(buckets):
        assert not bucket.has_room(torch.empty(following.entries[0].shape, dtype=torch.uint8))


@pytest.mark.parametrize("weight", [
    torch.arange(12.0).reshape(3, 4).T, torch.arange(12.0)[::2], torch.ones(1).expand(4),
    torch.nn.Parameter(torch.ones(2, 3)), torch.tensor(7),
], ids=["transposed", "strided", "expanded", "parameter", "scalar"])  # fmt: skip
def test_any_layout_is_packed_by_value(weight):
    (bucket,) = pack([("w", weight)], 1000)
    ((_, got),) = unpack(bucket.entries, bucket.payload)
    assert torch.equal(got, weight.detach())
    assert not got.requires_grad


def test_a_bucket_holds_copies():
    memory = torch.zeros(3)

    def reused():
        for i in range(3):
            yield f"w{i}", memory.fill_(i)

    (bucket,) = pack(reused(), 1000)
    got = [weight.tolist() for _, weight in unpack(bucket.entries, bucket.payload)]
    assert got == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
