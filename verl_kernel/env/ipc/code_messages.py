# SPDX-License-Identifier: Apache-2.0
"""How native code of kernels is asked for: by an executing process of its judge, by the judge of a compiling process.

PTX and code themselves lie in memory that judge and compiling process share, and follow the answer to an executing
process as bare bytes. A compiling process that was asked once is asked for nothing else.
"""

from __future__ import annotations

from typing import Any, TypedDict

LeftOut = list[int] | None
"""Numbers of the instructions that do not store, in an ablation (`executor.flow.origins`); null where all do."""


class Translate(TypedDict):
    """Compile a launch (`compilation.description.Unit`) to PTX; asked of a compiling process."""

    translate: dict[str, Any]


class Translated(TypedDict):
    """PTX was made."""

    ptx: int
    """Its bytes."""
    warps: int
    """Of a block."""
    shared: int
    """Bytes of a block's shared memory."""
    signature: dict[str, Any]
    """Types of the kernel's parameters, by name, as Triton names them; nested lists for tuples."""


class NativeRequest(TypedDict):
    """What native code is made of, besides the PTX."""

    ptx: int
    """Its bytes."""
    warps: int
    shared: int
    left_out: LeftOut


class Native(TypedDict):
    """Make native code; asked of a compiling process."""

    native: NativeRequest


class Made(TypedDict):
    """Native code was made (`executor.code`)."""

    made: int
    """Its bytes."""


class Refused(TypedDict):
    """There is none, and why (`compilation.outcome.Refusal`)."""

    refused: dict[str, Any]


class CodeRequest(TypedDict):
    """Code of a launch; asked of the judge."""

    unit: dict[str, Any]
    """`compilation.description.Unit`."""
    left_out: LeftOut


class Code(TypedDict):
    """The judge has it; so many bytes follow."""

    code: int
    name: str
    """The same for the same code."""
    signature: dict[str, Any]
    """As of `Translated`."""
    starts: list[int]
    """Lines where the launch's functions begin, in the source that the code was made of (`compilation.isolated`)."""


class Failed(TypedDict):
    """The judge could not have it made, and not because of the kernel."""

    failed: str
