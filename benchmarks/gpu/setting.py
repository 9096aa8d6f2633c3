# SPDX-License-Identifier: Apache-2.0
"""What a section is told: where to write, on which device, and how long it has."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a section that only looks at the machine needs none of the gym's packages
    from verl_kernel.env import GymOptions
    from verl_kernel.env.devices.base import DeviceBackend
    from verl_kernel.env.devices.cuda.stopwatch import Stopwatch

ROOT = Path(__file__).resolve().parents[2]
PRETENDED_GPU = ROOT / "tests" / "env" / "pretend"
"""In PYTHONPATH, its `sitecustomize` replaces the device of judges, zygotes and sections by the pretended one."""


@dataclass(frozen=True)
class Setting:
    """One run's circumstances, as one section sees them."""

    out: str
    pretend: bool
    ends_at: float
    """When the section is stopped, by `time.monotonic` (which all processes of a machine share)."""

    def left_s(self) -> float:
        """Seconds until then."""
        return self.ends_at - time.monotonic()

    def device(self, probe: bool = True) -> DeviceBackend:
        """The GPU, or the pretended one."""
        from verl_kernel.env import backends

        return backends.resolve_device(self.device_name, probe)

    def stopwatch(self) -> Stopwatch:
        """What judges and runners time with."""
        if self.pretend:
            return importlib.import_module("pretend_gpu").stopwatch()  # type: ignore[no-any-return]
        return self.device().stopwatch  # type: ignore[attr-defined,no-any-return]

    @property
    def device_name(self) -> str:
        """The gym's option `device`."""
        return "cpu" if self.pretend else "cuda"

    def options(self, **chosen: Any) -> GymOptions:
        """Options of a gym on this device, without the gate."""
        from verl_kernel.env import GymOptions

        host = {"memory_mb": 1024, "run_timeout_s": 2.0} if self.pretend else {"memory_mb": 4096}
        usual = {"device": self.device_name, "static_check": "off", "load_timeout_s": 60.0, **host}
        return GymOptions(**{**usual, **chosen})

    def to_json(self) -> str:
        """One line for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Setting:
        """The setting that `to_json` wrote."""
        return cls(**json.loads(text))
