# SPDX-License-Identifier: Apache-2.0
"""Runs Triton's compiler for any target, in a process without a GPU.

Import this module only in such a process: it makes Triton assume a target, and gives the name `torch` to an empty
module. Triton's specialisation needs only `Tensor` of it, so the process saves 250 MB and a second for torch.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError
from triton.runtime.driver import driver

from verl_kernel.env.compilation.description import Unit, definitions
from verl_kernel.env.compilation.outcome import Outcome, Refusal, Resources
from verl_kernel.env.compilation.rebuilding import Rebuilt, Tensor
from verl_kernel.env.compilation.target import Target
from verl_kernel.env.triton_driver import TritonDriver

# A kernel whose compilation shows that Triton, its assembler and the target work together.


@triton.jit  # type: ignore[untyped-decorator]
def copy_kernel(source, target, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copy `size` elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + offsets, mask=offsets < size)
    tl.store(target + offsets, values, mask=offsets < size)


# Finds what the compiler's exception says, and at which line of which function.


_REPR = re.compile(r"(\w+(?:Error|Exception|Failure))\((.*)\)", re.DOTALL)


def refusal(exc: BaseException, functions: Sequence[Any]) -> Refusal:
    """Return the innermost reason, and the innermost place that lies in one of the functions.

    Args:
        exc: what the compiler raised.
        functions: jit functions of the source; errors inside Triton's own functions are reported at their call.
    """
    chain = list(_chain(exc))
    reason = chain[-1]
    kind, message = _unwrapped(type(reason).__name__, str(getattr(reason, "error_message", None) or reason))
    texts = {function.src: number for number, function in enumerate(functions)}
    source_places = [source_place for item in chain if (source_place := _place(item, texts)) is not None]
    function, offset = source_places[-1] if source_places else (0, 0)
    return Refusal(kind, " ".join(message.split()) or "no reason is given", function, offset)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, the innermost last."""
    visited: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        yield current
        current = current.__cause__


def _place(exc: BaseException, texts: dict[str, int]) -> tuple[int, int] | None:
    """Return the function and the line within it, if the exception is about one of the source's functions."""
    if not isinstance(exc, CompilationError) or exc.src not in texts or not hasattr(exc.node, "lineno"):
        return None
    return texts[exc.src], max(0, exc.node.lineno - 1)


def _unwrapped(kind: str, message: str) -> tuple[str, str]:
    """Return class and message of the exception whose `repr` a message is."""
    match = _REPR.fullmatch(message.strip())
    if match is None:
        return kind, message
    try:
        return match[1], str(ast.literal_eval(match[2])) if match[2] else ""
    except (SyntaxError, ValueError):  # more than one argument, or not a literal
        return match[1], match[2]


_VERSIONS = {"cuda": {"cuda": "12.8", "hip": None}, "hip": {"cuda": None, "hip": "6.4"}}
"""`torch.version` of a build for each of Triton's back ends, which kernels ask."""


def without_torch(backend: str) -> ModuleType:
    """Return a module `torch` with a class for every name, as annotations of kernels need one.

    It is a plain module, as Triton copies every global of another type (`DependenciesFinder`).
    """
    module, version = ModuleType("torch"), ModuleType("torch.version")
    version.__dict__.update(_VERSIONS[backend])

    def named(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

    module.__dict__.update(Tensor=Tensor, version=version, __getattr__=named)
    return module


def driver_of(target: Target) -> TritonDriver:
    """Return what Triton asks while it compiles for a target."""
    return TritonDriver(GPUTarget(target.BACKEND, target.architecture, target.lanes), {})


def _assume(target: Target) -> None:
    """Let Triton and kernels take this target for the machine's."""
    driver.set_active(driver_of(target))
    sys.modules["torch"] = without_torch(target.BACKEND)


def prepare(target: Target) -> None:
    """Load what a first compilation for a target loads (once for each).

    Raises:
        Exception: Triton cannot compile for the target.
    """
    triton.knobs.nvidia.dump_ptxas_log = True  # only this log tells how many registers a kernel needs
    _assume(target)
    copy_kernel.device_caches.clear()  # it may have been compiled for another target
    with contextlib.redirect_stdout(io.StringIO()):
        compile_trial_kernel()


def compile_trial_kernel() -> Any:
    """Compile a small kernel with the active driver, in a process without torch."""
    sys.modules.setdefault("torch", without_torch("cuda"))
    for module in (triton.runtime.cache, triton.compiler.compiler):
        if hasattr(module, "triton_key"):  # it would hash half a gigabyte for a cache that only this process reads
            module.triton_key = lambda: version("triton")

    return copy_kernel.warmup(Tensor("float32", True), Tensor("float32", True), 3, BLOCK=64, grid=(1,))


class Compiler:
    """Compiles launches of one source for one target.

    Args:
        file: the file that holds the source.
        target: a target that this process was prepared for.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """

    def __init__(self, file: str, target: Target) -> None:
        source = Path(file).read_bytes().decode("utf-8", "surrogatepass")
        self._file, self._target, self._definitions = file, target, definitions(source)
        _assume(target)

    def compile(self, unit: Unit) -> Outcome:
        """Compile one launch down to machine code."""
        begun = time.perf_counter()
        result = self._compiled(unit)
        return Outcome(result, time.perf_counter() - begun)

    def _compiled(self, unit: Unit) -> Resources | Refusal:
        functions: list[Any] = []
        log = io.StringIO()
        try:
            rebuilt = Rebuilt(unit, self._definitions, self._file)
            functions = rebuilt.functions
            with contextlib.redirect_stdout(log):
                kernel = functions[0].warmup(*rebuilt.positional, grid=(1,), **rebuilt.named, **rebuilt.options)
            return self._target.resources(kernel.metadata._asdict(), kernel.asm, log.getvalue())
        except Exception as exc:  # noqa: BLE001  whatever stops the compiler is its refusal
            return refusal(exc, functions)
