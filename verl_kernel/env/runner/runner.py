# SPDX-License-Identifier: Apache-2.0
"""The runner: an untrusted process that executes one candidate at the judge's request.

The main requests are `load` and `run`. `load` imports the candidate's file and builds its model with the reference's
arguments and weights. `run` does one forward on the inputs in shared memory, copies the output to the place that the
judge has filled with poison, and reports the trace. The candidate could forge every answer, so the judge compares the
bytes of outputs itself; it believes the runner only in what tripwire and snapshot note against the candidate.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from verl_kernel.env import torch_modes
from verl_kernel.env.backends import Backend
from verl_kernel.env.devices.op_results import OpResults
from verl_kernel.env.ipc.channel import Channel, ChannelClosed, Message, ProtocolError
from verl_kernel.env.ipc.messages import (
    Described,
    DryReplies,
    DryRequest,
    Failure,
    Form,
    LeftOut,
    LoadReply,
    LoadRequest,
    Mode,
    Place,
    Remarks,
    RunReply,
    RunRequest,
    TimeReply,
)
from verl_kernel.env.ipc.shared_memory import SharedMemory, TensorSpec, flatten, unflatten
from verl_kernel.env.ipc.tensor_facts import same_place, storages, tensor_facts
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE
from verl_kernel.env.seeding import seed_everything
from verl_kernel.env.static_check import candidate_code
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.snapshot import Snapshot
from verl_kernel.env.tamper.tripwire import WIRE
from verl_kernel.env.trace import dump_events
from verl_kernel.env.weights import hand_over

_MODULE = "kernel"
_MESSAGE_CHARS, _FRAMES = 4000, 8
"""Longest error message, and most stack frames of the candidate that a failure reports."""


class Runner:
    """The runner's loop: answers one judge over one channel until `exit`, or until the judge closes the channel."""

    def __init__(
        self, channel: Channel, memory: SharedMemory, backend: Backend, scratch: str, snapshot: Snapshot
    ) -> None:
        self._channel, self._memory, self._device = channel, memory, backend.device
        self._path = str(Path(scratch) / CANDIDATE_FILE)
        self._model: Any = None
        self._snapshot, self._begun = snapshot, 0
        self._constants: list[torch.Tensor] = []
        self._op_results: OpResults | None = None
        self._timed = backend.timed_calls(memory, self._put) if backend.timed_calls else None

    def serve(self) -> None:
        """Answer requests until `exit` or until the channel closes."""
        with contextlib.suppress(ChannelClosed):
            while "exit" not in (request := self._channel.recv()):
                self._reply(self._answer(request))
        self._forget()

    def _forget(self) -> None:
        """Free the candidate's objects, so that corrupted memory crashes this process now, while the judge watches."""
        self._model = None
        if (module := sys.modules.pop(_MODULE, None)) is not None:
            vars(module).clear()
        gc.collect()

    def _answer(self, request: Message) -> Mapping[str, object]:
        self._begun, self._op_results = time.thread_time_ns(), None
        stage = "load" if "load" in request else "run"
        answer: LoadReply | RunReply | TimeReply | DryReplies | Described | Remarks
        try:
            if "describe" in request:
                answer = {"description": self._device.describe_launches()}
            elif "time" in request and self._timed is not None:
                answer = self._timed.answer(request["time"], self._model)
            elif "dry" in request:
                answer = self._dry(request["dry"])
            else:
                answer = self._load(request["load"]) if stage == "load" else self._watched(request["run"])
        except BaseException as exc:  # noqa: BLE001  a candidate may raise any exception, even SystemExit
            answer = {"failure": self._describe(exc, stage)}
        # After a failure too: a program may raise where its kernels are left out, so that nobody sees what torch had.
        samples: dict[str, Any] = (
            {"samples": [each.to_json() for each in self._op_results.samples()]} if self._op_results else {}
        )
        return {**answer, "notes": WIRE.take(), **samples}

    def _watched(self, request: RunRequest) -> RunReply:
        WIRE.start()
        try:
            return self._run(request)
        finally:
            WIRE.stop()

    def _reply(self, message: Mapping[str, object]) -> None:
        try:
            self._channel.send(message)
        except ProtocolError as exc:
            failure = _failure("runtime_error", "TraceTooLong", str(exc))
            self._channel.send(Remarks(failure=failure))

    def _load(self, request: LoadRequest) -> LoadReply:
        self._constants = tensors = self._tensors(request["specs"])
        self._model = self._build(request, tensors)
        self._inspect()
        state = {name: tensors[number] for name, number in request["state"].items()}
        return {"weights": hand_over(self._model, state, request["constants"], request["structured"])}

    def _build(self, request: LoadRequest, tensors: list[torch.Tensor]) -> Any:
        cls = self._imported(request["entry"])
        args, kwargs = unflatten(request["init"], tensors)
        seed_everything(request["seed"])
        if (ruled_out := request["describe"]) is not None:
            self._device.begin_description(ruled_out)
        with torch.no_grad(), self._device.watch_allocations():
            model = self._device.place(cls(*args, **kwargs))
        if not callable(model):
            raise TypeError(f"{request['entry']}(...) is a {type(model).__name__} that cannot be called")
        return model

    def _imported(self, entry: str) -> Any:
        """Import the candidate's file and return its class."""
        module = candidate_code.load(_MODULE, self._path)
        cls = getattr(module, entry, None)
        if cls is None:
            raise AttributeError(f"the source defines no class {entry}")
        return cls

    def _dry(self, request: DryRequest) -> DryReplies:
        """Do dry passes of the candidate.

        They replace what launches do, so the runner cannot serve other requests afterwards.
        """
        from verl_kernel.env.true_size.dry_candidate import DryCandidate  # most runners never need it

        candidate = DryCandidate(self._device, request["seed"], self._view)
        self._snapshot = Snapshot()
        replies = []
        try:
            cls = self._imported(request["entry"])
            replies = [candidate.run(cls, size) for size in request["sizes"]]
        except Exception:
            if not candidate.reasons:
                raise
        self._inspect()
        return {"replies": replies, "reasons": candidate.reasons}

    def _run(self, request: RunRequest) -> RunReply:
        # Without `detach`, an in-place change of an input would fail while gradients are recorded.
        inputs = [tensor.detach() for tensor in self._tensors(request["specs"])]
        args, kwargs = unflatten(request["inputs"], inputs)
        self._device.confine(self._memory.region(0, self._memory.size), [*self._constants, *inputs])
        self._device.poison([self._device.to_device(self._view(spec)) for spec in request["outputs"]])
        left_out = request["suppress"]
        explained, ready = self._device.spent_ns, time.thread_time_ns()
        # The recorder starts last: it must record the program's ops, but not those that fill memory with poison.
        with (
            self._in_mode(request["mode"]),
            self._launches(left_out),
            self._sampled(request["sample_seed"]),
            self._device.record() as events,
        ):
            output = self._model(*args, **kwargs)
            self._device.synchronize()
        self._give_back(inputs, request["specs"])
        thread_ns, explained = time.thread_time_ns(), self._device.spent_ns - explained
        form, trace = self._put(output, inputs, request["outputs"]), dump_events(events)
        if request["inspect"]:
            self._inspect()
        own = ready - self._begun + time.thread_time_ns() - thread_ns
        return {**form, "events": trace, "spent": {"device": explained, "own": own}}

    @contextlib.contextmanager
    def _in_mode(self, mode: Mode | None) -> Iterator[None]:
        gradients = torch_modes.recording_gradients() if mode and mode["gradients"] else torch.no_grad()
        with gradients, torch_modes.switched(self._model) if mode and mode["switched"] else contextlib.nullcontext():
            yield

    def _launches(self, left_out: LeftOut | None) -> contextlib.AbstractContextManager[Any]:
        """Return the context of a forward: uninitialised memory holds poison, and an ablation suppresses launches."""
        return self._device.watch_allocations() if left_out is None else self._device.suppress_launches(**left_out)

    def _sampled(self, seed: int | None) -> contextlib.AbstractContextManager[Any]:
        """Return the context of a forward in which results of torch's ops are sampled, if a seed is given."""
        self._op_results = None if seed is None else OpResults(seed)
        return self._op_results or contextlib.nullcontext()

    def _put(self, output: Any, inputs: list[torch.Tensor], specs: list[Place]) -> Form:
        """Copy an output's tensors to the poisoned places for it, as far as their facts match; return its form."""
        tensors: list[torch.Tensor] = []
        with contextlib.suppress(TypeError):  # the tree stays None, which tells the judge that this is no valid output
            tree = None
            tree = flatten(output, tensors)
        input_storages = storages(inputs)
        facts = [tensor_facts(tensor, input_storages) for tensor in tensors]
        for tensor, fact, spec in zip(tensors, facts, specs, strict=False):
            view = self._view(spec)
            if same_place(fact, tensor_facts(view)):
                view.copy_(tensor.detach())
        return {"output": tree, "tensors": facts}

    def _inspect(self) -> None:
        for change in self._snapshot.changes():
            WIRE.note(HackFlag.PATCHED, change)  # check: nothing-was-patched

    def _tensors(self, specs: list[Place]) -> list[torch.Tensor]:
        return [self._device.to_device(self._view(spec)) for spec in specs]

    def _view(self, spec: Place) -> torch.Tensor:
        return self._memory.view(TensorSpec.from_json(spec))

    def _give_back(self, inputs: list[torch.Tensor], specs: list[Place]) -> None:
        """Copy inputs on a device back to shared memory, where the judge checks whether the candidate changed them."""
        for tensor, view in zip(inputs, map(self._view, specs), strict=True):
            if tensor.data_ptr() != view.data_ptr():
                view.copy_(tensor.detach())

    def _describe(self, exc: BaseException, stage: str) -> Failure:
        frames = [*_frames(exc, self._path)]
        cause = exc.__cause__
        if cause is not None and type(exc).__name__ == "CompilationError":
            frames += _frames(cause, self._path)
            exc = cause
        tail = "\n".join(frames[-_FRAMES:])
        return _failure(self._status(exc, stage), type(exc).__name__, str(exc)[:_MESSAGE_CHARS], tail)

    def _status(self, exc: BaseException, stage: str) -> str:
        if isinstance(exc, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(exc):
            return "oom"
        if self._device.is_crash(exc):
            return "crash"
        if self._device.is_compile_error(exc):
            return "compile_error"
        return "load_error" if stage == "load" else "runtime_error"


def _failure(status: str, kind: str, message: str, tail: str = "") -> Failure:
    return {"status": status, "type": kind, "message": message, "traceback_tail": tail}


def _frames(exc: BaseException, path: str) -> list[str]:
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == path]
    return [f"line {frame.lineno}, in {frame.name}: {frame.line}" for frame in frames]
