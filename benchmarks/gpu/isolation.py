# SPDX-License-Identifier: Apache-2.0
"""Starts a runner's CUDA context inside the jail: with all layers, without each, without several.

This process plays the zygote: it holds no context, and every attempt is a fork that goes a runner's way step by step
(`attempt.STEPS`). Where all layers together refuse the GPU, the layers that do so are taken apart: which system call
seccomp would have to allow, which folder Landlock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.gpu.attempt import Outcome, attempt
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.relief import Relief, further
from benchmarks.gpu.setting import Setting
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.runner import zygote
from verl_kernel.env.sandbox import jail

_SPARE_S = 3.0
_JUDGE = """
import json
from verl_kernel.env import resolve_device
device = resolve_device({name!r})
device.setup()
print(json.dumps(device.zygote_env()))
"""


def run(setting: Setting, findings: Findings) -> None:
    """One row per combination of layers; then, where the whole jail fails, one per relief that helps."""
    os.environ.update(_told(setting))
    backend, _ = zygote._prepare(setting.device_name)
    device = backend.device
    findings.fact("profile", str(device.isolation()))
    outcomes: dict[tuple[str, ...], Outcome] = {}
    for left_out in combinations():
        if setting.left_s() < _SPARE_S:
            findings.unknown(_title(left_out), "no time was left for it")
            continue
        is_told = () in outcomes and outcomes[()].works  # then the others need not compile and profile again
        outcomes[left_out] = outcome = attempt(device, Relief(left_out), "tensor" if is_told else "profiler")
        findings.row("layers", jail=_title(left_out), **outcome.columns())
    whole = outcomes[()]
    findings.fact("layers in force", list(whole.isolation))
    findings.check("a runner works in the whole jail", whole.works, whole.words)
    if not whole.works:
        _take_apart(setting, device, outcomes, findings)


def _told(setting: Setting) -> dict[str, str]:
    """What a judge tells its zygote; it knows it from a context, and this process must have none."""
    code = _JUDGE.format(name=setting.device_name)
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    told: dict[str, str] = json.loads(said)
    return told


def combinations() -> list[tuple[str, ...]]:
    """Layers to leave out together, the fewest first."""
    names = [mechanism.name for mechanism in jail.MECHANISMS]
    pairs = [("landlock", "seccomp"), ("landlock", "own_user"), ("landlock", "seccomp", "own_user")]
    return [(), *((name,) for name in names), *pairs, tuple(names)]


def _title(left_out: tuple[str, ...]) -> str:
    return f"without {', '.join(left_out)}" if left_out else "all layers"


def _take_apart(
    setting: Setting, device: DeviceBackend, outcomes: dict[tuple[str, ...], Outcome], findings: Findings
) -> None:
    """What within the fewest layers without which it works is in the way, those others being left out?"""
    guilty = next((left_out for left_out, outcome in outcomes.items() if outcome.works), None)
    title = "" if guilty is None else _title(guilty)
    findings.check("a runner works outside some of the jail", guilty is not None, title)
    for layer in guilty or ():
        others = Relief(tuple(name for name in guilty or () if name != layer))
        _search(setting, device, others, layer, findings)


def _search(setting: Setting, device: DeviceBackend, relief: Relief, layer: str, findings: Findings) -> None:
    """Keep each relief that brings the runner further, until it works."""
    best = attempt(device, relief)
    while not best.works:
        for more in further(relief, layer):
            if setting.left_s() < _SPARE_S:
                findings.unknown(f"what within {layer} is in the way", "no time was left for it")
                return
            if (outcome := attempt(device, more)).reached > best.reached:
                relief, best = more, outcome
                findings.row("what helps", jail=str(relief), **outcome.columns())
                break
        else:
            findings.row("what helps", jail=f"nothing single within {layer}", **best.columns())
            return
