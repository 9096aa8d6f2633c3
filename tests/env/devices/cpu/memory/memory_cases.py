# SPDX-License-Identifier: Apache-2.0
"""Run with TRITON_INTERPRET=1 by test_memory.py: what the checks find in each kernel. Prints JSON."""

import json
from collections.abc import Callable

import torch

from verl_kernel.env.backends import resolve_device

DEVICE = resolve_device("cpu")
DEVICE.setup()

from tests.env.devices.cpu.memory import ordered, racing, unwritten  # noqa: E402, F401  they add their cases
from tests.env.devices.cpu.memory.faults import FAULTS  # noqa: E402
from tests.env.devices.cpu.memory.honest import HONEST  # noqa: E402
from verl_kernel.env.devices.cpu.memory import launch_log  # noqa: E402


def found(launch: Callable[[], object]) -> dict[str, object]:
    """Findings of one forward, and what it raised and returned."""
    raised, result = None, None
    with torch.no_grad(), DEVICE.check_memory(), DEVICE.record():
        try:
            result = launch()
        except Exception as exc:  # noqa: BLE001  whatever a launch raises is its result
            raised = f"{type(exc).__name__}: {exc}"
    value = result.tolist() if isinstance(result, torch.Tensor) else None
    return {"findings": DEVICE.take_memory_findings(), "raised": raised, "result": value}


def main() -> None:
    """All cases, at once and with every access looked through by itself, as in a launch of many."""
    cases = {name: launch for name, (_, launch) in FAULTS.items()} | HONEST
    whole = {name: found(launch) for name, launch in cases.items()}
    launch_log._MOST_LANES = 0
    print(json.dumps({"whole": whole, "piecewise": {name: found(launch) for name, launch in cases.items()}}))


if __name__ == "__main__":
    main()
