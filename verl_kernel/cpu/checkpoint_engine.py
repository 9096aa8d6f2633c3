# SPDX-License-Identifier: Apache-2.0
"""Transfers weights from the trainer to rollouts in other processes without a GPU, as an engine of verl's registry.

verl's own engines that leave the process need CUDA or RDMA. This one joins the trainer's first rank and all rollout
workers in a gloo group, which is made for each update and closed after it; weights are packed into buckets of bytes.
verl imports this module by `actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module`, and selects the engine
by `backend: kernel_gloo`.
"""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import ray
import torch
from torch.distributed import BroadcastOptions, PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from verl_kernel.cpu import WEIGHT_TRANSFER
from verl_kernel.errors import InfraError

_ALIGNMENT = 16
"""Alignment in bytes: a view in a weight's dtype must start at a multiple of the dtype's size; 16 is the largest."""
OUTSIDE = -1
"""Rank of a trainer's worker that sends nothing."""
Address = tuple[str, int]


@dataclass(frozen=True)
class Entry:
    """One weight of a bucket: its name, dtype, shape and first byte."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int


@dataclass
class Bucket:
    """Weights in sequence in one uint8 tensor."""

    data: torch.Tensor
    entries: list[Entry] = field(default_factory=list)
    used: int = 0

    @property
    def payload(self) -> torch.Tensor:
        """Return the bytes that hold weights, uint8 (used,)."""
        return self.data[: self.used]

    def has_room(self, weight: torch.Tensor) -> bool:
        """Whether the weight fits after the others."""
        return self._next_offset() + weight.nbytes <= len(self.data)

    def add(self, name: str, weight: torch.Tensor) -> None:
        """Copy a weight, of any dtype and layout, after the others."""
        offset = self._next_offset()
        self.entries.append(Entry(name, tuple(weight.shape), weight.dtype, offset))
        self.used = offset + weight.nbytes
        self.data[offset : self.used].copy_(weight.detach().contiguous().reshape(-1).view(torch.uint8))

    def _next_offset(self) -> int:
        return math.ceil(self.used / _ALIGNMENT) * _ALIGNMENT


def pack(weights: Iterable[tuple[str, torch.Tensor]], bucket_size: int) -> Iterator[Bucket]:
    """Copy weights into buckets, in their order.

    Args:
        weights: names and tensors; taken one by one, as each may be gathered only when it is asked for.
        bucket_size: bytes of a bucket; a larger weight gets a separate bucket.
    """
    bucket = _bucket(bucket_size)
    for name, weight in weights:
        if not bucket.has_room(weight):
            if bucket.entries:
                yield bucket
            bucket = _bucket(max(bucket_size, weight.nbytes))
        bucket.add(name, weight)
    if bucket.entries:
        yield bucket


def unpack(entries: Iterable[Entry], payload: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and weights of a bucket; they share the memory of `payload`, uint8 (bytes,)."""
    for entry in entries:
        size = math.prod(entry.shape) * entry.dtype.itemsize
        yield entry.name, payload[entry.offset : entry.offset + size].view(entry.dtype).view(entry.shape)


def _bucket(size: int) -> Bucket:
    return Bucket(torch.empty(size, dtype=torch.uint8))


@CheckpointEngineRegistry.register(WEIGHT_TRANSFER)
class GlooCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """Broadcasts weights, bucket by bucket, over a gloo group.

    Args:
        bucket_size: bytes sent at once; each end holds one bucket.
        is_master: whether this is the worker that sends.
        timeout_s: seconds after which a worker gives up waiting for another one.
    """

    def __init__(self, bucket_size: int, is_master: bool = False, timeout_s: float = 600.0) -> None:
        self.bucket_size = bucket_size
        self.is_master = is_master
        self._timeout = timedelta(seconds=timeout_s)
        self._store: TCPStore | None = None
        self._group: ProcessGroupGloo | None = None

    def prepare(self) -> Address | None:
        """Return the address at which the group will meet; only the sender has one."""
        if not self.is_master:
            return None
        host = ray.util.get_node_ip_address().strip("[]")
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=self._timeout)
        return host, self._store.port

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Address | None]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Number the workers: the trainer's first one is 0, the rollout's start at 1, all others stay outside.

        Args:
            actor_wg_world_size: workers of the trainer.
            rollout_world_size: workers of all rollout replicas.
            metadata: what each worker's `prepare` returned, the trainer's first.
        """

        def kwargs(ranks: list[int]) -> dict[str, list[Any]]:
            return {
                "rank": ranks,
                "world_size": [1 + rollout_world_size] * len(ranks),
                "address": [metadata[0]] * len(ranks),
            }

        trainers = [0] + [OUTSIDE] * (actor_wg_world_size - 1)
        return kwargs(trainers), kwargs(list(range(1, 1 + rollout_world_size)))

    def init_process_group(self, rank: int, world_size: int, address: Address) -> None:
        """Join the group; return when all of its workers have joined."""
        if rank == OUTSIDE:
            return
        if self._store is None:
            self._store = TCPStore(*address, is_master=False, timeout=self._timeout)
        self._group = ProcessGroupGloo(PrefixStore("weights", self._store), rank, world_size, self._timeout)

    def finalize(self) -> None:
        """Leave the group and close its connections."""
        self._group = None
        self._store = None

    async def send_weights(
        self, weights: Generator[tuple[str, torch.Tensor], None, None], global_steps: int | None = None
    ) -> None:
        """Send all weights; if one cannot be produced, the receivers fail as well.

        Args:
            weights: names and tensors.
            global_steps: the version of the weights, which verl itself passes to the rollout.
        """
        if self._group is None:
            # Producing a weight is a collective operation of all trainer workers, including those that send nothing.
            for _ in weights:
                pass
            return
        try:
            for bucket in pack(weights, self.bucket_size):
                await self._send(bucket.entries, bucket.payload)
        except Exception as exc:
            await self._send(f"{type(exc).__name__}: {exc}")
            raise
        await self._send(None)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """Yield all weights in the order in which they are sent; each bucket has separate memory.

        Raises:
            InfraError: the sender could not produce its weights.
            RuntimeError: the sender has ended (gloo's own error).
        """
        while (received := await self._receive()) is not None:
            for weight in unpack(*received):
                yield weight

    async def _send(self, header: list[Entry] | str | None, payload: torch.Tensor | None = None) -> None:
        """Broadcast a bucket's entries with its bytes, the text of an error, or None for the end."""
        words = torch.frombuffer(bytearray(pickle.dumps(header)), dtype=torch.uint8)
        payload = torch.empty(0, dtype=torch.uint8) if payload is None else payload
        await self._broadcast(torch.tensor([len(words), len(payload)]))
        await self._broadcast(words)
        await self._broadcast(payload)

    async def _receive(self) -> tuple[list[Entry], torch.Tensor] | None:
        sizes = await self._broadcast(torch.empty(2, dtype=torch.int64))
        words, payload = [await self._broadcast(torch.empty(int(size), dtype=torch.uint8)) for size in sizes]
        # Pickle is safe here: both ends are verl's workers, which trust each other.
        header = pickle.loads(words.numpy().tobytes())
        if isinstance(header, str):
            raise InfraError(f"the trainer could not send its weights ({header}): its log says where")
        return None if header is None else (header, payload)

    async def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sender's content of a tensor of equal size everywhere, without blocking other tasks."""
        if len(tensor):
            assert self._group is not None
            # The options' default root is rank 0, the sender.
            work = self._group.broadcast([tensor], BroadcastOptions())  # type: ignore[attr-defined]
            await asyncio.to_thread(work.wait)
        return tensor
