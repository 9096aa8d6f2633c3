# SPDX-License-Identifier: Apache-2.0
"""The compiler's result for a launch: what the kernel uses, or why it was refused.

Both come from a process that compiled untrusted text, so they are validated on reading.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_MOST_BYTES, _MOST_CHARS = 2**40, 2000

UNKNOWN = "NotExecuted"
"""Kind of a refusal by the emulator, which lacks a definition for something that the compiler generated."""
PASSED_OVER = ("OutOfResources", "PTXASError", "CompileTimeAssertionFailure")
"""Refusals for which `triton.runtime.autotuner` skips a configuration."""


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel uses.

    Raises:
        ValueError: a number is impossible for a kernel.
    """

    warps: int
    """Warps of a block, including those added by warp specialisation."""
    shared: int
    """Bytes of shared memory of a block."""
    registers: int | None
    """Registers of a thread, AMD's accumulators among them; None if the assembler does not report them."""
    spills: int | None
    """Bytes that a thread spills because it has too few registers."""
    ctas: int = 1
    """Blocks of a cluster."""
    tensor_columns: int = 0
    """Columns of tensor memory."""
    accumulators: int | None = None
    """Registers of a thread that are kept for matrix instructions (AGPRs); None where there is no such kind."""
    scalars: int | None = None
    """Scalar registers of a warp (SGPRs); None where there is no such kind."""
    scratch: int = 0
    """Bytes of global memory that a launch asks the program's allocator for."""
    matrix: bool | None = None
    """Whether there is an instruction of a matrix unit among the kernel's."""
    staged: int = 0
    """Bytes that the code brings into shared memory for products, each of its instructions counted once."""
    transposing: int = 0
    """Cycles for which those of them that are written word by word keep shared memory busy (`transposing.staging`)."""

    def __post_init__(self) -> None:
        numbers = [value for key, value in asdict(self).items() if key != "matrix" and value is not None]
        if self.matrix is not None and type(self.matrix) is not bool:
            raise ValueError("whether a kernel uses matrix instructions must be true, false or null")
        if not all(type(value) is int and 0 <= value < _MOST_BYTES for value in numbers) or self.warps < 1:
            raise ValueError("what a kernel uses must be integers of at least 0, and at least one warp")
        if self.transposing and not self.staged:
            raise ValueError("a kernel that transposes tiles must stage some")
        if None in (self.warps, self.shared, self.ctas, self.tensor_columns, self.scratch):
            raise ValueError("a kernel's warps, shared memory, cluster, tensor memory and scratch must be known")


@dataclass(frozen=True)
class Refusal:
    """Why there is no kernel that could be launched.

    Raises:
        ValueError: a field has another type.
    """

    kind: str
    """Class of the compiler's exception, or a name for another reason."""
    message: str
    """The compiler's message."""
    function: int | None = None
    """Number of the function in the description; None if the compiler names none."""
    offset: int = 0
    """Lines from that function's first line."""

    def __post_init__(self) -> None:
        if not (type(self.kind) is str and type(self.message) is str):
            raise ValueError("a refusal needs a kind and a message, both strings")
        if type(self.offset) is not int or not 0 <= self.offset < 2**31:
            raise ValueError("the offset of a refusal must be an integer of at least 0")
        if self.function is not None and type(self.function) is not int:
            raise ValueError("the function of a refusal must be an integer or null")

    @classmethod
    def from_json(cls, value: Any) -> Refusal:
        """Read a refusal from a compiling process (raises ValueError, TypeError, LookupError); long strings are cut."""
        refusal = cls(**value)
        return cls(refusal.kind[:80], refusal.message[:_MOST_CHARS], refusal.function, refusal.offset)


@dataclass(frozen=True)
class Outcome:
    """The result of compiling one launch."""

    result: Resources | Refusal
    seconds: float
    """Duration of the compilation."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        key = "refused" if isinstance(self.result, Refusal) else "used"
        return {key: asdict(self.result), "seconds": self.seconds}

    @classmethod
    def from_json(cls, value: Any) -> Outcome:
        """Read an outcome from a compiling process.

        Raises:
            ValueError: it is not what `to_json` writes, or not a statement about a kernel.
            TypeError, LookupError: for the same reasons.
        """
        seconds = value["seconds"]
        if type(seconds) is not float or not 0 <= seconds < 1e6:
            raise ValueError("the seconds of a compilation must be a number of at least 0")
        if "refused" in value:
            return cls(Refusal.from_json(value["refused"]), seconds)
        return cls(Resources(**value["used"]), seconds)
