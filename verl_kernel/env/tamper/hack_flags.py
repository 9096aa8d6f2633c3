# SPDX-License-Identifier: Apache-2.0
"""Flags that an evaluation can raise against a candidate."""

from __future__ import annotations

from enum import Enum
from typing import Any


class HackFlag(str, Enum):
    """Flags of `EvalResult.hack_flags`, gravest first; if there are several, the first names the error.

    All but the last two come with the status `hacking`.
    """

    HOST_ACCESS = "host_access"
    """The candidate reads tensors on the host, or computes with them there."""
    FOREIGN_OP = "foreign_op"
    """The candidate runs or registers ops that are not torch's."""
    ESCAPED_RECORDER = "escaped_recorder"
    """The candidate uses torch in a way that the recorder does not see."""
    UNAPPROVED_LAUNCH = "unapproved_launch"
    """The candidate launches something other than a kernel of `triton.jit`."""
    PATCHED = "patched"
    """The candidate has replaced functions or set hooks in its process."""
    HIDDEN_WORK = "hidden_work"
    """The candidate computes outside of kernels, in a way that the clock does not count."""
    REPLAYED_OUTPUT = "replayed_output"
    """The output repeats that of an earlier trial."""
    IMPOSSIBLE_TRACE = "impossible_trace"
    """The trace counts fewer bytes than the output has."""
    EDITED_TRACE = "edited_trace"
    """The trace does not match the seals that were sent while it was recorded."""
    IMPOSSIBLE_TIME = "impossible_time"
    """The measured time is shorter than the device's memory bandwidth allows."""
    TIMING_MISMATCH = "timing_mismatch"
    """The judge's own clock does not confirm the runner's times."""
    FORGED_MESSAGE = "forged_message"
    """The process sent a message that no runner sends."""
    LAUNCH_RAISED = "launch_raised"
    """A launch failed and the forward went on; lowers coverage and does not change the verdict."""
    ONLY_MOVES = "only_moves"
    """Torch computes and the kernels only copy; lowers coverage and does not change the verdict."""

    @property
    def is_remark(self) -> bool:
        """Whether the flag may come with the status `ok`."""
        return self in (HackFlag.LAUNCH_RAISED, HackFlag.ONLY_MOVES)


def read_notes(notes: Any) -> dict[HackFlag, str]:
    """Return a runner's notes against its candidate, gravest first.

    Raises:
        AttributeError: the notes are not a mapping.
        ValueError: a flag is unknown, or one that only a judge may raise.
    """
    read = {HackFlag(name): str(detail) for name, detail in notes.items()}
    if remarks := [flag.value for flag in read if flag.is_remark]:
        raise ValueError(f"a runner cannot note {', '.join(remarks)}")  # check: note-is-a-runners
    return {flag: read[flag] for flag in HackFlag if flag in read}
