# SPDX-License-Identifier: Apache-2.0
"""The tripwire: notes what no honest program does, such as escaping the recorder or reading tensors on the host.

Such work would take no time on the clock. The tripwire stops nothing: its notes travel with the runner's next answer,
and the judge refuses the candidate. A candidate that replaces the tripwire's hooks is found by `snapshot`.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import torch

import verl_kernel
from verl_kernel.env.tamper import named_ops
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.trace import TraceEvent

# Distinguish judged programs (references, candidates) from the libraries that they call.


_LIBRARIES = [Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
_ROOTS = tuple(f"{path}/" for path in (*_LIBRARIES, Path(torch.__file__).parents[1], Path(verl_kernel.__file__).parent))


@lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    """Tell whether a file belongs to Python, to an installed package or to this package."""
    return filename.startswith(("<frozen", *_ROOTS))


def program_asks(depth: int = 2) -> bool:
    """Tell whether the function `depth` calls up the stack belongs to a judged program."""
    return not is_library(sys._getframe(depth).f_code.co_filename)


HOST_ELEMENTS = 64
"""Tensor elements that one forward may read on the host: enough for sizes and flags, too few for data."""

_ESCAPES: dict[Any, str] = {
    torch._C: (
        "_DisableTorchDispatch DisableTorchFunction DisableTorchFunctionSubclass _DisableFuncTorch "
        "_ForceDispatchKeyGuard _DisablePythonDispatcher _ExcludeDispatchKeyGuard "
        "_IncludeDispatchKeyGuard _AutoDispatchBelowAutograd _AutoDispatchBelowADInplaceOrView "
        "_dispatch_tls_set_dispatch_key_excluded _dispatch_tls_set_dispatch_key_included "
        "_unset_dispatch_mode _pop_torch_dispatch_stack _pop_torch_function_stack _set_dispatch_mode"
    ),
    torch.utils._python_dispatch: "_disable_current_modes _pop_mode_temporarily _pop_mode",
    torch.overrides: "_pop_mode_temporarily _pop_mode",
    torch: "compile",
    torch.jit: "script trace trace_module load freeze optimize_for_inference",
}
_FOREIGN: dict[Any, str] = {
    torch.library: "Library define impl register_kernel register_torch_dispatch",
    torch.ops: "load_library",
    torch.classes: "load_library",
    torch._C: "_dispatch_library",
}
_BULK_READS = "numpy tolist apply_ map_ map2_ __dlpack__"
"""Methods of tensors by which the host reads all elements at once."""
_HOST: dict[Any, str] = {torch: "from_numpy frombuffer from_file"}
_WIRES = {HackFlag.ESCAPED_RECORDER: _ESCAPES, HackFlag.FOREIGN_OP: _FOREIGN, HackFlag.HOST_ACCESS: _HOST}


class Tripwire:
    """The notes against a candidate since the previous `take`."""

    def __init__(self) -> None:
        self.watching = False
        """Whether a forward is running."""
        self.events: list[TraceEvent] | None = None
        """Trace of the forward, to which bulk reads are added."""
        self._notes: dict[str, str] = {}
        self._read = 0

    def start(self) -> None:
        """Begin a forward."""
        self.watching, self._read = True, 0

    def stop(self) -> None:
        """End the forward."""
        self.watching = False

    def note(self, flag: HackFlag, detail: str) -> None:
        """Note a violation; only the first detail of each flag is kept."""
        self._notes.setdefault(flag.value, detail)

    def read(self, elements: int, how: str) -> None:
        """Count tensor elements that the host reads; note a violation above `HOST_ELEMENTS`."""
        self._read += elements
        if self.watching and self._read > HOST_ELEMENTS:
            # check: few-elements-are-read
            self.note(
                HackFlag.HOST_ACCESS,
                f"{how}: the forward reads more than {HOST_ELEMENTS} elements of tensors on the host",
            )

    def read_in_bulk(self, tensor: torch.Tensor, how: str) -> None:
        """Count all elements of a tensor, and add the traffic of the copy to the trace."""
        self.read(tensor.numel(), how)
        if self.watching and self.events is not None:
            # Read from the device and written to the host: a GPU would have to move both.
            self.events.append(TraceEvent("op", "host::read", (), 2 * tensor.nbytes))

    def take(self) -> dict[str, str]:
        """Return the notes by flag, and clear them."""
        notes, self._notes = self._notes, {}
        return notes


WIRE = Tripwire()
"""This process's tripwire."""


def install() -> None:
    """Install the hooks; call this once per process."""
    for flag, group in _WIRES.items():
        for owner, names in group.items():
            for name in names.split():
                if callable(original := getattr(owner, name, None)) and not hasattr(original, "wired"):
                    setattr(owner, name, _wired(original, f"{getattr(owner, '__name__', owner)}.{name}", flag))
    named_ops.install(program_asks)
    _watch_pickling()
    sys.addaudithook(_audit)
    for name in _BULK_READS.split():
        _watch_read(name)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Receive Python's audit events and note access to raw memory (ctypes) and searches of all objects (gc).

    An audit hook cannot be removed.
    """
    if WIRE.watching and event.startswith("ctypes."):
        WIRE.note(HackFlag.HOST_ACCESS, f"{event}: raw memory is used")  # check: no-raw-memory
    elif WIRE.watching and event in ("gc.get_objects", "gc.get_referrers"):
        WIRE.note(HackFlag.ESCAPED_RECORDER, f"{event} is called")  # check: no-escape-from-the-recorder


def _watch_read(name: str) -> None:
    """Wrap a method that reads a tensor in bulk; it counts reads while no function mode is active.

    That is the case in callbacks of torch functions and in hooks of autograd; elsewhere the recorder's mode counts.
    """
    original = getattr(torch.Tensor, name)
    if hasattr(original, "wired"):
        return

    @wraps(original)
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not torch._C._len_torch_function_stack():
            WIRE.read_in_bulk(self, f"Tensor.{name}")
        return original(self, *args, **kwargs)

    method.wired = True  # type: ignore[attr-defined]
    setattr(torch.Tensor, name, method)


def _watch_pickling() -> None:
    """Wrap the method by which `torch.save` and pickle read a tensor, for all callers."""
    original = getattr(torch.Tensor, "_reduce_ex_internal", None)
    if original is None or hasattr(original, "wired"):
        return

    @wraps(original)
    def reduce(self: torch.Tensor, protocol: int) -> Any:
        WIRE.read_in_bulk(self, "pickling a tensor")
        return original(self, protocol)

    reduce.wired = True  # type: ignore[attr-defined]
    torch.Tensor._reduce_ex_internal = reduce  # type: ignore[method-assign]


def _wired(original: Callable[..., Any], name: str, flag: HackFlag) -> Callable[..., Any]:
    @wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        # Torch itself calls these functions as well: only calls from a program's own file count.
        if program_asks():
            WIRE.note(flag, f"{name} is called")  # check: no-call-past-the-recorder
        return original(*args, **kwargs)

    function.wired = True  # type: ignore[attr-defined]
    return function
