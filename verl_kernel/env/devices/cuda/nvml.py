# SPDX-License-Identifier: Apache-2.0
"""NVML, the driver's own library of facts, where the package `nvidia-ml-py` is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Nvml:
    """Answers questions about the GPU with this UUID; what cannot be asked is unknown, None."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:  # no package, no driver, no permission: all mean unknown
            return

    def ask(self, question: Callable[[Any, Any], Answer]) -> Answer | None:
        """What a function of the module `pynvml` and the GPU's handle returns, or None."""
        if self._nvml is None:
            return None
        try:
            return question(self._nvml, self._handle)
        except (self._nvml.NVMLError, AttributeError):  # no permission, a card without that sensor, an old package
            return None
