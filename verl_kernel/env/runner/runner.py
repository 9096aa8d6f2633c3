# SPDX-License-Identifier: Apache-2.0
"""The untrusted side of an evaluation: one process, one candidate.

It answers two requests, in the order the judge likes. `load`: import the candidate's file, build its model with the
reference's arguments and weights. `run`: one forward on the inputs in shared memory, its output copied to the place
the judge poisoned, its trace reported. Everything it says is a claim; the judge believes bytes only, and whatever the
runner's own watch (tripwire, integrity) notes against the candidate.
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

from verl_kernel.env import modes
from verl_kernel.env.backends import Backend
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


class Runner:
    """Serves one judge over one channel; ends when told to, or when the judge is gone."""

    def __init__(
        self, channel: Channel, memory: SharedMemory, backend: Backend, scratch: str, snapshot: Snapshot
    ) -> None:
        self._channel, self._memory, self._device = channel, memory, backend.device
        self._path = str(Path(scratch) / CANDIDATE_FILE)
        self._model: Any = None
        self._snapshot, self._begun = snapshot, 0
        self._constants: list[torch.Tensor] = []
        self._timed = backend.timed_calls(memory, self._put) if backend.timed_calls else None

    def serve(self) -> None:
        """Answer requests until `exit` or the end of the channel."""
        with contextlib.suppress(ChannelClosed):
            while "exit" not in (request := self._channel.recv()):
                self._reply(self._answer(request))
        self._forget()

    def _forget(self) -> None:
        """Free the candidate's objects, so that memory it has corrupted crashes this process now and not unseen."""
        self._model = None
        if (module := sys.modules.pop(_MODULE, None)) is not None:
            vars(module).clear()
        gc.collect()

    def _answer(self, request: Message) -> Mapping[str, object]:
        self._begun = time.thread_time_ns()
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
        except BaseException as exc:  # noqa: BLE001  a candidate may raise anything, SystemExit included
            answer = {"failure": self._describe(exc, stage)}
        return {**answer, "notes": WIRE.take()}

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
        return {"weights": hand_over(self._model, state, request["constants"])}

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
        """The candidate's class."""
        module = candidate_code.load(_MODULE, self._path)
        cls = getattr(module, entry, None)
        if cls is None:
            raise AttributeError(f"the source defines no class {entry}")
        return cls

    def _dry(self, request: DryRequest) -> DryReplies:
        """Follow the candidate without data; this changes what launches do, so it serves no other request."""
        from verl_kernel.env.true_size.dry_candidate import DryCandidate  # no other runner needs it

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
        inputs = [tensor.detach() for tensor in self._tensors(request["specs"])]  # may be changed with gradients on
        args, kwargs = unflatten(request["inputs"], inputs)
        self._device.confine(self._memory.region(0, self._memory.size), [*self._constants, *inputs])
        self._device.poison([self._device.to_device(self._view(spec)) for spec in request["outputs"]])
        left_out = request["suppress"]
        explained, ready = self._device.spent_ns, time.thread_time_ns()
        # The recorder comes last: it sees what the program does, and not how its memory is filled.
        with self._in_mode(request["mode"]), self._launches(left_out), self._device.record() as events:
            output = self._model(*args, **kwargs)
            self._device.synchronize()
        self._give_back(inputs, request["specs"])
        done, explained = time.thread_time_ns(), self._device.spent_ns - explained
        form, trace = self._put(output, inputs, request["outputs"]), dump_events(events)
        if request["inspect"]:
            self._inspect()
        own = ready - self._begun + time.thread_time_ns() - done
        return {**form, "events": trace, "spent": {"device": explained, "own": own}}

    @contextlib.contextmanager
    def _in_mode(self, mode: Mode | None) -> Iterator[None]:
        gradients = modes.recording_gradients() if mode and mode["gradients"] else torch.no_grad()
        with gradients, modes.switched(self._model) if mode and mode["switched"] else contextlib.nullcontext():
            yield

    def _launches(self, left_out: LeftOut | None) -> contextlib.AbstractContextManager[Any]:
        """Memory that is allocated without values holds poison, that of an ablation another one."""
        return self._device.watch_allocations() if left_out is None else self._device.suppress_launches(**left_out)

    def _put(self, output: Any, inputs: list[torch.Tensor], specs: list[Place]) -> Form:
        """Copy an output to the places the judge has poisoned for it, where its form allows that."""
        tensors: list[torch.Tensor] = []
        with contextlib.suppress(TypeError):  # the judge sees from the missing tree that it is no output
            tree = None
            tree = flatten(output, tensors)
        given = storages(inputs)
        facts = [tensor_facts(tensor, given) for tensor in tensors]
        for tensor, fact, spec in zip(tensors, facts, specs, strict=False):
            place = self._view(spec)
            if same_place(fact, tensor_facts(place)):
                place.copy_(tensor.detach())
        return {"output": tree, "tensors": facts}

    def _inspect(self) -> None:
        for change in self._snapshot.changes():
            WIRE.note(HackFlag.PATCHED, change)

    def _tensors(self, specs: list[Place]) -> list[torch.Tensor]:
        return [self._device.to_device(self._view(spec)) for spec in specs]

    def _view(self, spec: Place) -> torch.Tensor:
        return self._memory.view(TensorSpec.from_json(spec))

    def _give_back(self, inputs: list[torch.Tensor], specs: list[Place]) -> None:
        """Copy inputs back to shared memory where the forward had copies: the judge checks whether it wrote to them."""
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
