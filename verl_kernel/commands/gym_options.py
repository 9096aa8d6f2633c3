# SPDX-License-Identifier: Apache-2.0
"""Options of commands that are options of the gym: names, words and defaults are those of its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_type_hints

import typer

from verl_kernel.env.gpus import OWN_FIGURES
from verl_kernel.env.options import STRICT, GymOptions, TargetName
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import nearest, option_names, words_of

_RENAMED = {"trials": "correctness_trials", "baseline": "reference_mode"}
_HINTS = get_type_hints(GymOptions)


USUAL: Mapping[str, Any] = {**GymOptions.in_recipes(), **STRICT}
"""What each option of the gym is unless it is given: what `gym=strict` says."""


def _words(key: str, text: str) -> Any:
    """An option with its words; `off` comes last."""
    words = sorted(words_of(_HINTS[key]), key="off".__eq__)
    return typer.Option(help=text.format(f"{', '.join(words[:-1])} or {words[-1]}"))


Device = Annotated[str, _words("device", "Where kernels run: {}.")]
Baseline = Annotated[str, _words("reference_mode", "Mode of the reference that speedups are over: {}.")]
Address = Annotated[str | None, typer.Option(help="Service whose judges judge, as in http://judges:8008.")]
AddressKey = Annotated[str | None, typer.Option(help="File that holds an API key of that service.")]
StaticCheck = Annotated[str, _words("static_check", "Static gate: {}.")]
Tolerance = Annotated[str, typer.Option(help="scaled (per dtype) or parity (allclose 1e-2).")]
Float32 = Annotated[str, typer.Option(help="ieee, or tf32: accept products with TF32's precision.")]
Trials = Annotated[int, typer.Option(help="Correctness trials on fresh inputs.")]
GpuProfile = Annotated[
    str, _words("gpu_profile", f"Nominal GPU of the simulated clock: {{}}; with figures of your own, {OWN_FIGURES}.")
]
CompileFor = Annotated[
    str, _words("compile_for", "On a CPU, compile launches for this GPU too, or for several (sm_90,gfx942): {}.")
]
MemoryChecks = Annotated[str, _words("memory_checks", "Faults in memory: {}.")]
References = Annotated[str, _words("references", "Whether a task's reference may do as the judge's user may: {}.")]
MemoryMb = Annotated[
    int, typer.Option(min=1, help="Memory of a candidate, in MiB; KernelBench on a GPU needs up to 36864.")
]
NumJudges = Annotated[int, typer.Option(help="Kernels judged at a time.")]
TrueSize = Annotated[str, typer.Option(help="auto: judge large tasks at reduced sizes; or off.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds for the reference, and for each kernel's run.")]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def read_targets(option: str, text: str) -> tuple[str, ...]:
    """Return the GPUs that an option of a command names, none if it is empty.

    Raises:
        ConfigError: there is no such target.
    """
    targets = get_args(TargetName)
    names = _names(text) if text else []
    if wrong := [name for name in names if name not in targets]:
        raise ConfigError(f"{option} names {wrong[0]!r}; {nearest(wrong[0], targets)}targets are {', '.join(targets)}")
    return tuple(names)


def read_levels(text: str) -> tuple[int, ...]:
    """Return the levels that `--levels` names.

    Raises:
        ConfigError: one is no number.
    """
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ConfigError(f"--levels is {text!r}; it must be numbers, as in 1,2") from None


def chosen(arguments: Mapping[str, Any]) -> GymOptions:
    """Return the gym that a command's arguments ask for; what it has no argument for is as in `gym=strict`.

    Raises:
        ConfigError: a value is out of its range.
    """
    named = {_RENAMED.get(key, key): value for key, value in arguments.items()}
    values = {**STRICT, **{key: named[key] for key in option_names(GymOptions) if key in named}}
    if "," in values["compile_for"]:
        values["compile_for"] = _names(values["compile_for"])
    if arguments.get("timeout") is not None:
        values |= dict.fromkeys(("reference_timeout_s", "load_timeout_s", "run_timeout_s"), arguments["timeout"])
    return GymOptions(**values)
