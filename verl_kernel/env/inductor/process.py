# SPDX-License-Identifier: Apache-2.0
"""The process that compiles references: `python -m verl_kernel.env.inductor.process DESCRIPTOR`.

It forks for each request `{"folder": <path>}`, and answers `{"pid": <number>}` and, when the forked process has ended,
`{"status": <exit status>}`; until then any message kills that process. The folder has `task.json` and gets
`answer.json`: `{"program": <text>, "graphs": <number>}`, or `{"refused": <reason>}`.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils import _pytree as pytree

from verl_kernel.env.comparison import tf32
from verl_kernel.env.devices.cpu.cuda_shim import CudaAsCpu
from verl_kernel.env.devices.cpu.device import CpuDevice
from verl_kernel.env.inductor.kernel_texts import NotWritten
from verl_kernel.env.inductor.pretended_gpu import pretend
from verl_kernel.env.inductor.program_text import write_program
from verl_kernel.env.inductor.recording import CompiledProgram
from verl_kernel.env.ipc.channel import Channel, ChannelClosed
from verl_kernel.env.reference.program import ReferenceProgram
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.dataless import AddressSpace
from verl_kernel.env.true_size.dry_pass import without_data
from verl_kernel.errors import TaskError

_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")
"""Variables that name folders for what compilers write."""


def main() -> None:
    """Serve the judge at the other end of the descriptor named on the command line, until it closes its end."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    pretend()
    with suppress(ChannelClosed):
        while True:
            request = channel.recv()
            if "folder" not in request:  # too late to kill the previous process
                continue
            if pid := os.fork():
                channel.send({"pid": pid})
                channel.send({"status": _watched(pid, channel)})
            else:
                _become(channel, Path(request["folder"]))


def _watched(pid: int, channel: Channel) -> int:
    """Wait for a process, and kill it if the judge says so or is gone; return its exit status or minus its signal."""
    ended = os.pidfd_open(pid)
    if channel.fileno() in select.select([ended, channel.fileno()], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
        with suppress(ChannelClosed):
            channel.recv()
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(channel: Channel, folder: Path) -> NoReturn:
    """Compile the task of a folder, and exit."""
    status = 1
    try:
        channel.close()
        request = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        resource.setrlimit(resource.RLIMIT_DATA, (request["memory_mb"] << 20,) * 2)
        os.environ.update(dict.fromkeys(_FOLDERS, str(folder)))
        tf32.use(request["float32"])
        recording = compiled(Task(request["reference"], request["task_id"], request["entry_point"]))
        (folder / "answer.json").write_text(json.dumps(recording), encoding="utf-8")
        status = 0
    finally:  # after any exception too: the forked copy must never return to the loop
        os._exit(status)


def compiled(task: Task) -> dict[str, Any]:
    """Return the program that does what a compiled reference does, or why there is none."""
    try:
        model, (args, kwargs), mode = _on_gpu(task)
        recording = CompiledProgram().record(model, args, kwargs, mode)
        text = write_program(task.candidate_class, (args, kwargs), recording)
    except (NotWritten, TaskError) as exc:
        return {"refused": str(exc)}
    except Exception as exc:  # noqa: BLE001  the reference and torch's compiler may raise anything
        return {"refused": _reason(exc)}
    return {"program": text, "graphs": recording.graphs}


def _on_gpu(task: Task) -> tuple[Any, Any, FakeTensorMode]:
    """Build a reference without data and move it to the pretended GPU; returns model, inputs and the mode of both."""
    space = AddressSpace()
    with torch.no_grad(), without_data(space), CudaAsCpu():
        program = ReferenceProgram(task, CpuDevice())
        program.build(program.init_inputs())
        inputs = program.draw_for("dry").unflattened()
    if any(isinstance(part, torch.nn.RNNBase) for part in _parts(program.model)):
        raise NotWritten("torch.compile leaves recurrent layers to eager mode")
    mode = FakeTensorMode()
    moved = _Moved(mode)
    return moved.model(program.model), pytree.tree_map(moved.tensor, inputs), mode


class _Moved:
    """Moves tensors to the pretended GPU, each once."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode, self._moved = mode, dict[int, torch.Tensor]()
        self._alive: list[torch.Tensor] = []

    def tensor(self, value: Any) -> Any:
        """Return the tensor on the GPU, and any other value as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._moved:
            with self._mode:
                moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
            is_weight = isinstance(value, torch.nn.Parameter)
            self._alive.append(value)  # so that its id is not reused
            self._moved[id(value)] = torch.nn.Parameter(moved, False) if is_weight else moved
        return self._moved[id(value)]

    def model(self, model: Any) -> Any:
        """Return the model with all its tensors on the GPU."""
        for part in _parts(model):
            for name, value in vars(part).items():
                if name in ("_parameters", "_buffers"):
                    vars(part)[name] = {key: self.tensor(item) for key, item in value.items()}
                elif name != "_modules":
                    vars(part)[name] = pytree.tree_map(self.tensor, value)
        return model


def _parts(model: Any) -> Iterable[Any]:
    """Return a model and all modules in it."""
    return model.modules() if isinstance(model, torch.nn.Module) else [model]


def _reason(exc: BaseException) -> str:
    """Return why there is no program: the first sentence of what torch's compiler has wrapped in its own exceptions."""
    inner = exc
    while isinstance(wrapped := getattr(inner, "inner_exception", None), BaseException):
        inner = wrapped
    if isinstance(inner, DataDependentOutputException):
        return "its forward reads the value of a tensor on the host"
    first = next(iter(str(inner).strip().splitlines()), "").partition(". ")[0]
    return f"{type(inner).__name__}: {' '.join(first.split())[:200]}"


if __name__ == "__main__":
    main()
