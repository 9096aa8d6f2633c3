# SPDX-License-Identifier: Apache-2.0
"""Finds references that end their process on integers out of range, and runs these in a child first.

Most of torch's ops check their indices and raise; some do not, such as products of sparse matrices whose rows are given
by offsets. A judge that ran one on varied integers would end, once for each candidate.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence

import torch

_PATIENCE_S = 60.0
"""A child that has not ended by then counts as one that crashed."""
_FAR = 1 << 20
"""How far beyond their range integers are moved to see whether they are checked."""


def survives(*runs: Callable[[], object]) -> bool:
    """Whether functions end in a child of this process, by returning or by an exception, and not by a signal."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            faulthandler.disable()  # its report of a crash would look like the judge's
            torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
            for run in runs:
                with contextlib.suppress(BaseException):  # an exception is no crash, whichever it is
                    run()
        finally:
            os._exit(0)
    os.close(writer)
    try:
        if not select.select([reader], [], [], _PATIENCE_S)[0]:  # it is readable once the child is gone
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(reader)
    return os.waitpid(child, 0)[1] == 0


def beyond(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield copies of inputs with the integers of one of them out of any range, in some places."""
    for number, tensor in enumerate(tensors):
        if tensor.dtype in (torch.int32, torch.int64) and tensor.numel():
            for distance in (_FAR, -_FAR):
                moved = tensor.clone()
                moved.reshape(-1)[tensor.numel() // 2 :] += distance
                yield [*tensors[:number], moved, *tensors[number + 1 :]]
