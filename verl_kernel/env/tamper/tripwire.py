# SPDX-License-Identifier: Apache-2.0
"""Notes what no honest program does: leaving the recorder, reading tensors on the host, running foreign ops.

Work that the clock does not see must not be free. A tripwire stops nothing: what it noted is reported with the next
answer, and the judge refuses the candidate. It is one layer; who replaces its hooks is found by `integrity`.
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
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.trace import TraceEvent

# Tells the programs that are judged (references, candidates) from the libraries they call.


_LIBRARIES = [Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
_ROOTS = tuple(f"{path}/" for path in (*_LIBRARIES, Path(torch.__file__).parents[1], Path(verl_kernel.__file__).parent))


@lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    """Whether code of this file belongs to Python, an installed package or this package."""
    return filename.startswith(("<frozen", *_ROOTS))


def program_asks(depth: int = 2) -> bool:
    """Whether the function `depth` calls up from here belongs to a program."""
    return not is_library(sys._getframe(depth).f_code.co_filename)


HOST_ELEMENTS = 64
"""Tensor elements one forward may read on the host: sizes and flags, not data."""

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
    torch.library: "Library custom_op define impl register_kernel triton_op register_torch_dispatch",
    torch.ops: "load_library",
    torch.classes: "load_library",
    torch._C: "_dispatch_library",
}
_BULK_READS = "numpy tolist apply_ map_ map2_ __dlpack__"
_HOST: dict[Any, str] = {torch: "from_numpy frombuffer from_file"}
_WIRES = {HackFlag.ESCAPED_RECORDER: _ESCAPES, HackFlag.FOREIGN_OP: _FOREIGN, HackFlag.HOST_ACCESS: _HOST}


class Tripwire:
    """What has been noted since the last `take`."""

    def __init__(self) -> None:
        self.watching = False
        """Whether a forward is running."""
        self.events: list[TraceEvent] | None = None
        """Trace of the forward, where bulk reads are charged."""
        self._notes: dict[str, str] = {}
        self._read = 0

    def start(self) -> None:
        """A forward begins."""
        self.watching, self._read = True, 0

    def stop(self) -> None:
        """The forward has ended."""
        self.watching = False

    def note(self, flag: HackFlag, detail: str) -> None:
        """Remember a violation; the first detail of each kind is kept."""
        self._notes.setdefault(flag.value, detail)

    def read(self, elements: int, how: str) -> None:
        """Count tensor elements that the host looks at."""
        self._read += elements
        if self.watching and self._read > HOST_ELEMENTS:
            self.note(
                HackFlag.HOST_ACCESS,
                f"{how}: the forward reads more than {HOST_ELEMENTS} elements of tensors on the host",
            )

    def read_in_bulk(self, tensor: torch.Tensor, how: str) -> None:
        """Count the elements of a tensor and charge their way to the host."""
        self.read(tensor.numel(), how)
        if self.watching and self.events is not None:
            self.events.append(TraceEvent("op", "host::read", (), 2 * tensor.nbytes))

    def take(self) -> dict[str, str]:
        """The notes by flag; they are forgotten here."""
        notes, self._notes = self._notes, {}
        return notes


WIRE = Tripwire()
"""This process's tripwire."""


def install() -> None:
    """Install the hooks (once per process)."""
    for flag, group in _WIRES.items():
        for owner, names in group.items():
            for name in names.split():
                if callable(original := getattr(owner, name, None)) and not hasattr(original, "wired"):
                    setattr(owner, name, _wired(original, f"{getattr(owner, '__name__', owner)}.{name}", flag))
    _watch_pickling()
    sys.addaudithook(_audit)
    for name in _BULK_READS.split():
        _watch_read(name)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook, which cannot be removed: Python reports access to raw memory and walks over all objects to it."""
    if WIRE.watching and event.startswith("ctypes."):
        WIRE.note(HackFlag.HOST_ACCESS, f"{event}: raw memory is used")
    elif WIRE.watching and event in ("gc.get_objects", "gc.get_referrers"):
        WIRE.note(HackFlag.ESCAPED_RECORDER, f"{event} is called")


def _watch_read(name: str) -> None:
    """See bulk reads where no function mode is on: in callbacks of torch functions, in hooks of autograd."""
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
    """`torch.save` and pickle read a tensor by this method, whoever calls them."""
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
        if program_asks():
            WIRE.note(flag, f"{name} is called")
        return original(*args, **kwargs)

    function.wired = True  # type: ignore[attr-defined]
    return function
