# SPDX-License-Identifier: Apache-2.0
"""NVML, the driver's own library of facts about a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Nvml:
    """Answers questions about the GPU with this UUID; what cannot be asked is unknown, None."""

    def __init__(self, uuid: str) -> None:
        import pynvml  # here, because the cpu device does without it

        self._nvml, self._gpu = pynvml, None
        with suppress(pynvml.NVMLError):  # no driver, no permission, no such GPU
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def ask(self, question: Callable[[Any, Any], Answer]) -> Answer | None:
        """What a function of the module `pynvml` and the GPU's handle returns, or None."""
        if self._gpu is None:
            return None
        try:
            return question(self._nvml, self._gpu)
        except (self._nvml.NVMLError, AttributeError):  # no permission, no such sensor, a function that is not there
            return None
