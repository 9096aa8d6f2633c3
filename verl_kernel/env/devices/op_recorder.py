# SPDX-License-Identifier: Apache-2.0
"""Records every torch op that needs a device kernel, with its counted cost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch

from verl_kernel.env.ops.call import bound, nbytes
from verl_kernel.env.ops.cost import OpCost, op_cost
from verl_kernel.env.ops.dispatch_modes import DispatchMode, parts
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.tripwire import WIRE
from verl_kernel.env.trace import TraceEvent

# Data that the events of a forward have left in the L2 cache for later events.
#
# Reads of a tensor that an earlier event read or wrote may come from L2, as far as the earlier event moved those bytes:
# of a launch, between the first and the last that it accessed; of an op that needs a part, the tensor's first ones.
# Whether they do depends on the bytes moved since then and the size of the GPU's cache. An event moves its tensors one
# after the other, written ones last: so if the cache cannot hold all of them, not all are found there. Inputs are
# cold. Tensors are identified by storage and offset; a freed storage is forgotten, so that another one at the same
# address is not mistaken for it.


Use = tuple[torch.Tensor, int] | tuple[torch.Tensor, int, range]
"""A tensor, the number of its bytes that an event moves, and between which of its bytes they lie (its first ones)."""
Uses = Iterable[Use]
_MOST_USES = 64
"""Uses of a tensor that are remembered: a loop may launch thousands of kernels on parts of one."""


class L2History:
    """History of the L2 cache in one forward."""

    def __init__(self) -> None:
        self._moved = 0
        self._last: WeakKeyDictionary[torch.UntypedStorage, dict[object, list[_Earlier]]] = WeakKeyDictionary()
        """Uses of a tensor by storage and offset, the latest last; uses that a later one covers are left out."""
        self._numbers: WeakKeyDictionary[torch.UntypedStorage, dict[object, int]] = WeakKeyDictionary()
        self._next = count()

    def add(self, reads: Uses, writes: Uses) -> tuple[tuple[int, int], ...]:
        """Record an event.

        Returns:
            Pairs (bytes, bytes moved since the earlier use) of its reads of tensors that were used before.
        """
        reads, writes = list(reads), list(writes)
        recent = [piece for use in reads for piece in self._pieces(use)]
        for tensor, size, *between in (*reads, *writes):
            self._moved += size
            if tensor.layout is torch.strided:
                latest = _Earlier(self._moved, size, *(between or [range(size)]))
                uses = self._last.setdefault(tensor.untyped_storage(), {})
                before = [use for use in uses.get(tensor.storage_offset(), []) if not latest.covers(use)]
                uses[tensor.storage_offset()] = [*before[1 - _MOST_USES :], latest]
        return tuple(recent)

    def touched(self, reads: Uses, writes: Uses) -> tuple[tuple[int, int, int], ...]:
        """Return for each tensor of an event, in order, its number in the forward and its bytes read and written."""
        touched: dict[int, tuple[int, int, int]] = {}
        for index, some in enumerate((reads, writes)):
            for tensor, size, *_ in some:
                number = self._number(tensor)
                _, read, written = touched.get(number, (number, 0, 0))
                touched[number] = (number, read + size * (not index), written + size * index)
        return tuple(touched.values())

    def _number(self, tensor: torch.Tensor) -> int:
        if tensor.layout is not torch.strided:
            return next(self._next)
        numbers = self._numbers.setdefault(tensor.untyped_storage(), {})
        return numbers.setdefault(tensor.storage_offset(), next(self._next))

    def _pieces(self, use: Use) -> Iterator[tuple[int, int]]:
        """Yield the bytes of a read that earlier uses moved, each with the bytes moved since."""
        tensor, size, *between = use
        if tensor.layout is not torch.strided or not size:
            return
        read = _Earlier(0, size, *(between or [range(size)]))
        # Parts of the read that are not found yet: first byte, end, and the fraction of the bytes between them.
        missing = [(read.between.start, read.between.stop, read.density)]
        for earlier in reversed(self._last.get(tensor.untyped_storage(), {}).get(tensor.storage_offset(), [])):
            found, missing = earlier.found(missing)
            if found:
                yield found, self._moved - earlier.moment


@dataclass(frozen=True)
class _Earlier:
    """A use of a tensor: which of its bytes it left in the cache."""

    moment: int
    """The total bytes moved by its end."""
    size: int
    between: range

    @property
    def density(self) -> float:
        """Return the fraction of the bytes between the first and the last one that it moved."""
        return self.size / max(1, len(self.between))

    def covers(self, other: _Earlier) -> bool:
        """Tell whether another use leaves nothing beyond this one."""
        is_inside = self.between.start <= other.between.start and other.between.stop <= self.between.stop
        return is_inside and self.density >= other.density

    def found(self, missing: Sequence[tuple[int, int, float]]) -> tuple[int, list[tuple[int, int, float]]]:
        """Return how many of the missing bytes this use left in the cache, and what is missing still."""
        found, left = 0.0, list[tuple[int, int, float]]()
        for start, end, density in missing:
            first, last = max(start, self.between.start), min(end, self.between.stop)
            if first >= last:
                left.append((start, end, density))
                continue
            share = min(density, self.density)
            found += (last - first) * share
            parts = ((start, first, density), (first, last, density - share), (last, end, density))
            left += [part for part in parts if part[0] < part[1] and part[2] > _NOTHING]
        return round(found), left


_NOTHING = 1e-9
"""A smaller fraction of bytes is a rounding."""


WHOLE = {
    getattr(torch, name): getattr(torch.ops.aten, name)
    for name in ("gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell", "rms_norm")
} | {torch.nn.functional.rms_norm: torch.ops.aten.rms_norm}
"""Functions that a GPU runs in few kernels and a CPU in many ops."""
_NAMESPACES = ("aten", "prims", "prim", "profiler")


class OpRecorder(DispatchMode):
    """Appends one event per op to `events`.

    Args:
        events: list to which events are appended.
    """

    current: OpRecorder | None = None
    """The active recorder."""

    def __init__(self, events: list[TraceEvent]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._events = events
        self._depth = 0
        self.l2 = L2History()
        """Data that launches and ops have left in the L2 cache."""
        self._is_inside = False
        self.spent_ns = 0

    def __enter__(self) -> Any:
        if not self._depth:  # entering again for the parts of an op changes nothing
            self._outer, OpRecorder.current = OpRecorder.current, self
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        if not self._depth:
            OpRecorder.current = self._outer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, start = kwargs or {}, time.thread_time_ns()
        self._depth += 1
        try:
            return self._run(func, types, args, kwargs)
        finally:
            self._depth -= 1
            if not self._depth:
                self.spent_ns += time.thread_time_ns() - start

    def _run(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        _watch(func, types)
        with self:  # in inference mode composite ops arrive undivided, but a device runs their parts
            result = parts(func, args, kwargs)
        if result is not NotImplemented:
            return result
        result = func(*args, **kwargs)
        cost = op_cost(func, args, kwargs, result)
        if cost is not None:
            name, overload = func._schema.name, func._overloadname
            self._append(f"{name}.{overload}" if overload != "default" else name, cost)
        return result

    def _append(self, label: str, cost: OpCost, kernels: int = 1) -> None:
        if self._is_inside:
            return
        moved, flops, half = (count // kernels for count in (cost.bytes, cost.flops, cost.half_flops))
        given_bytes = sum(map(nbytes, (*cost.reads, *cost.writes)))
        uses = _uses(cost)
        recent, touched = self.l2.add(*uses), self.l2.touched(*uses)
        held_bytes = _held([*cost.reads, *cost.writes])
        for number in range(kernels):
            steps = cost.steps if kernels == 1 else cost.steps[number : number + 1]
            event = TraceEvent(
                "op",
                label,
                (),
                moved,
                flops,
                half,
                priced=cost.priced,
                steps=steps,
                touched=touched,
                given=given_bytes,
                held=held_bytes,
            )
            self._events.append(replace(event, host_us=cost.host_us, recent=() if number else recent))

    def run_whole(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a function of `WHOLE`, recorded as one op: a GPU does not run its parts one by one."""
        if self._is_inside:
            return function(*args, **kwargs)
        self._is_inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._is_inside = False
        func = _overload(WHOLE[function], args, kwargs)
        if (cost := op_cost(func, args, kwargs, result)) is not None:
            self._append(func._schema.name, cost, max(1, len(cost.steps)))
        return result


def _uses(cost: OpCost) -> tuple[Uses, Uses]:
    """Return what an op moves of the tensors that it reads and writes: all together no more than its counted bytes.

    A gather of one row, or a trace, is given a whole tensor and leaves next to nothing of it in the cache. Where less
    is counted than the tensors hold, the largest of them are those that are used in part.
    """
    remaining, largest, sizes = cost.bytes, 0, sorted(map(nbytes, (*cost.reads, *cost.writes)))
    for number, size in enumerate(sizes):
        largest = max(largest, min(size, remaining // (len(sizes) - number)))
        remaining -= min(size, largest)
    reads, writes = ([(each, min(nbytes(each), largest)) for each in some] for some in (cost.reads, cost.writes))
    return reads, writes


def _held(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the storages of tensors."""
    storages = (tensor.untyped_storage() for tensor in tensors if tensor.layout is torch.strided)
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def _overload(packet: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the overload that a call selects: the one whose lists and tensors match those of the call."""
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next((func for func in overloads if _fits(func, bound(func, args, kwargs))), overloads[0])


def _fits(func: Any, arguments: Mapping[str, Any]) -> bool:
    kinds = {item.name: str(item.type) for item in func._schema.arguments}
    return arguments.keys() == kinds.keys() and all(
        isinstance(arguments[name], list | tuple) == kind.startswith("List")
        for name, kind in kinds.items()
        if "Tensor" in kind
    )


def whole(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run one of the functions in `WHOLE`, recorded as one op if a recorder is active."""
    recorder = OpRecorder.current
    return function(*args, **kwargs) if recorder is None else recorder.run_whole(function, args, kwargs)


def _watch(func: Any, types: Any) -> None:
    """Report what could compute unseen by this recorder: ops that are not torch's, and tensor subclasses."""
    if func.namespace not in _NAMESPACES:
        WIRE.note(HackFlag.FOREIGN_OP, f"{func.name()} is not an op of torch")  # check: op-is-of-torch
    foreign = [kind for kind in types if kind is not torch.Tensor]  # `types` lists Tensor for views of another dtype
    if foreign:
        # check: tensor-class-is-of-torch
        WIRE.note(HackFlag.FOREIGN_OP, f"a tensor of class {foreign[0].__name__} computes by itself")
    if func._schema.name == "aten::_local_scalar_dense":
        WIRE.read(1, "Tensor.item")
