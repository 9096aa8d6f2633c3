# SPDX-License-Identifier: Apache-2.0
"""The names of what an evaluation may find a candidate guilty or suspect of."""

from __future__ import annotations

from enum import Enum
from typing import Any


class HackFlag(str, Enum):
    """Flags of `EvalResult.hack_flags`, the gravest first: it names the error where there are several.

    All but the last three come with the status `hacking`.
    """

    HOST_ACCESS = "host_access"
    """Tensors are computed with or read on the host."""
    FOREIGN_OP = "foreign_op"
    """Ops that are not torch's."""
    ESCAPED_RECORDER = "escaped_recorder"
    """Torch is used where the recorder does not see it."""
    UNAPPROVED_LAUNCH = "unapproved_launch"
    """Something is launched that is no kernel of `triton.jit`."""
    PATCHED = "patched"
    """Functions of the process were replaced."""
    HIDDEN_WORK = "hidden_work"
    """Compute outside kernels that the clock does not count."""
    REPLAYED_OUTPUT = "replayed_output"
    """The output is the answer to an earlier trial."""
    IMPOSSIBLE_TRACE = "impossible_trace"
    """The trace counts fewer bytes than the output has."""
    EDITED_TRACE = "edited_trace"
    """The trace is not what happened."""
    IMPOSSIBLE_TIME = "impossible_time"
    """A time below what the memory of the device allows."""
    TIMING_MISMATCH = "timing_mismatch"
    """Times that the judge's own clock does not confirm."""
    FORGED_MESSAGE = "forged_message"
    """The process sent what no runner sends."""
    LAUNCH_RAISED = "launch_raised"
    """A launch failed and the forward went on; no verdict, but it costs coverage."""
    ONLY_MOVES = "only_moves"
    """Torch computes and the kernels copy; no verdict, but it costs coverage."""

    @property
    def is_remark(self) -> bool:
        """Whether it can stand beside the status `ok`."""
        return self in (HackFlag.LAUNCH_RAISED, HackFlag.ONLY_MOVES)


def read_notes(notes: Any) -> dict[HackFlag, str]:
    """What a runner has noted against its candidate, the gravest first.

    Raises:
        AttributeError, ValueError: no runner of ours notes that.
    """
    read = {HackFlag(name): str(detail) for name, detail in notes.items()}
    if remarks := [flag.value for flag in read if flag.is_remark]:
        raise ValueError(f"a runner cannot note {', '.join(remarks)}")
    return {flag: read[flag] for flag in HackFlag if flag in read}
