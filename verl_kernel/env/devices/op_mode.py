# SPDX-License-Identifier: Apache-2.0
"""What looks into a reference op by op, as a device would run it.

Composite ops arrive whole in inference mode and are taken apart first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class OpMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls `run_op` for every op inside that is not made of others."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, 80 MB and a second in every process that does this

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:
            result = func.decompose(*args, **kwargs)
        return self.run_op(func, args, kwargs) if result is NotImplemented else result

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op, or something in its place; its result."""
        raise NotImplementedError
