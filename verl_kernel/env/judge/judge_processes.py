# SPDX-License-Identifier: Apache-2.0
"""The processes that fork what an evaluation needs; judges may share them."""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.judge.compiling.code import CodeCache
from verl_kernel.env.judge.processes.server_process import ForkedZygote
from verl_kernel.env.judge.processes.zygote import CompileZygote, ExecuteZygote, ForkServer, Zygote
from verl_kernel.errors import ConfigError


class JudgeProcesses:
    """Zygotes for runners, compiling processes and executing processes, with the code that was made in them.

    Args:
        device: where candidates run.
        targets: GPUs for which launches are compiled.
        forked: the first zygote of runners, if the caller has forked one.
        compiling: the first zygote of compiling processes, likewise.
        executing: the first zygote of executing processes, likewise.
    """

    def __init__(
        self,
        device: DeviceBackend,
        targets: Sequence[str],
        forked: ForkedZygote | None = None,
        compiling: ForkedZygote | None = None,
        executing: ForkedZygote | None = None,
    ) -> None:
        # On a GPU Triton compiles in the runner, for the GPU that is there.
        self.targets = () if device.compiles_itself else tuple(targets)
        self.runners = Zygote(device, forked)
        self.compiling = CompileZygote(self.targets, compiling)
        self.executing = ExecuteZygote(executing)
        self.code = CodeCache()
        self._compiles, self._executes = bool(self.targets) or device.has_emulator, device.has_emulator

    def refuse_others(self, targets: Sequence[str]) -> None:
        """Refuse targets for which these processes cannot compile (raises ConfigError)."""
        if missing := [name for name in targets if name not in self.targets]:
            raise ConfigError(
                f"kernelgym.compile_for names {', '.join(missing)}, for which the given processes do not compile: make "
                "them with this target"
            )

    def launch(self) -> None:
        """Start those that are not running, without waiting."""
        for zygote in self._used:
            zygote.launch()

    def start(self) -> None:
        """Wait until all serve.

        Raises:
            EnvironmentNotReady: one cannot serve on this machine; the installed Triton does not know a target, say.
            InfraError: one does not start.
        """
        self.launch()
        for zygote in self._used:
            zygote.start()

    def close(self) -> None:
        """End them, and with them all processes that they have forked (idempotent)."""
        for zygote in self._used:
            zygote.close()

    @property
    def _used(self) -> list[ForkServer]:
        return [
            self.runners,
            *([self.compiling] if self._compiles else []),
            *([self.executing] if self._executes else []),
        ]
