# SPDX-License-Identifier: Apache-2.0
"""Options of commands that are options of the gym: names, words and defaults are those of its class.

A command names the flags it shows; every key of the gym reaches it through `--options FILE` and `--set KEY=VALUE`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from verl_kernel.data.files import read_yaml, value_of
from verl_kernel.env.gpus import OWN_FIGURES
from verl_kernel.env.options import STRICT, GymOptions, TargetName
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import nearest, option_names, words_of
from verl_kernel.reward.options import known_keys

_RENAMED = {"trials": "correctness_trials", "baseline": "reference_mode"}
_TIME_LIMITS = ("reference_timeout_s", "load_timeout_s", "run_timeout_s")
_HINTS = get_type_hints(GymOptions)


USUAL: Mapping[str, Any] = {**GymOptions.in_recipes(), **STRICT}
"""What each option of the gym is unless it is given: what `gym=strict` says."""


def _words(key: str, text: str) -> Any:
    """An option with its words; `off` comes last."""
    words = sorted(words_of(_HINTS[key]), key="off".__eq__)
    return typer.Option(help=text.format(f"{', '.join(words[:-1])} or {words[-1]}"))


Device = Annotated[str, _words("device", "Where kernels run: {}.")]
FLAGS: Mapping[str, Any] = {
    "device": Device,
    "baseline": Annotated[str, _words("reference_mode", "Mode of the reference that speedups are over: {}.")],
    "address": Annotated[str | None, typer.Option(help="Service whose judges judge, as in http://judges:8008.")],
    "address_key": Annotated[str | None, typer.Option(help="File that holds an API key of that service.")],
    "static_check": Annotated[str, _words("static_check", "Static gate: {}.")],
    "tolerance": Annotated[str, typer.Option(help="scaled (per dtype) or parity (allclose 1e-2).")],
    "float32": Annotated[str, typer.Option(help="ieee, or tf32: accept products with TF32's precision.")],
    "trials": Annotated[int, typer.Option(help="Correctness trials on fresh inputs.")],
    "gpu_profile": Annotated[
        str,
        _words("gpu_profile", f"Nominal GPU of the simulated clock: {{}}; with figures of your own, {OWN_FIGURES}."),
    ],
    "compile_for": Annotated[
        str, _words("compile_for", "On a CPU, compile launches for this GPU too, or for several (sm_90,gfx942): {}.")
    ],
    "memory_checks": Annotated[str, _words("memory_checks", "Faults in memory: {}.")],
    "references": Annotated[
        str, _words("references", "Whether a task's reference may do as the judge's user may: {}.")
    ],
    "memory_mb": Annotated[
        int, typer.Option(min=1, help="Memory of a candidate, in MiB; KernelBench on a GPU needs up to 36864.")
    ],
    "num_judges": Annotated[int, typer.Option(help="Kernels judged at a time.")],
    "true_size": Annotated[str, typer.Option(help="auto: judge large tasks at reduced sizes; or off.")],
    "other_sizes": Annotated[
        bool, typer.Option("--other-sizes", help="Judge right kernels at sizes that the task does not name, too.")
    ],
    "timeout": Annotated[float | None, typer.Option(help="Seconds for the reference, and for each kernel's run.")],
}
"""The flags that commands show, by name."""
_OPTIONS = Annotated[Path | None, typer.Option(help="YAML file of a recipe's kernelgym; flags change its keys.")]
_SETTINGS = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key of kernelgym, as in disk_mb=512; may be repeated."),
]


def takes_gym(
    *flags: str, drops: Sequence[str] = (), **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags of the gym, `--options` and `--set`; it gets what they say as its argument `gym`.

    Args:
        flags: names of `FLAGS`, in the order of the help.
        drops: keys of a file that the command does not take from it.
        defaults: values of flags other than the usual ones, which a file does not change.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_gym(
            *, invocation: typer.Context, options: Path | None, settings: list[str] | None, **arguments: Any
        ) -> None:
            values, base = {flag: arguments.pop(flag) for flag in flags}, STRICT
            if options is not None:
                base = {key: value for key, value in read_gym(options).items() if key not in drops}
                given = {flag for flag in flags if flag in defaults or _is_given(invocation, flag)}
                values = {flag: value for flag, value in values.items() if flag in given}
            command(**arguments, gym=chosen(values, base=base, settings=settings or ()))

        signature = inspect.signature(command, eval_str=True)
        invocation = inspect.Parameter("invocation", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        own = [parameter for name, parameter in signature.parameters.items() if name != "gym"]
        usual = {flag: defaults.get(flag, USUAL.get(_RENAMED.get(flag, flag))) for flag in flags}
        added = [_parameter(flag, FLAGS[flag], value) for flag, value in usual.items()]
        added += [_parameter("options", _OPTIONS, None), _parameter("settings", _SETTINGS, None)]
        # typer makes the command line of the signature.
        vars(with_gym)["__signature__"] = signature.replace(parameters=[invocation, *own, *added])
        return with_gym

    return decorate


def _is_given(invocation: typer.Context, flag: str) -> bool:
    source = invocation.get_parameter_source(flag)
    return source is not None and source.name == "COMMANDLINE"


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


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


def read_gym(path: Path) -> dict[str, Any]:
    """Return the keys of the gym in a file that holds a recipe's `kernelgym`, without those of rollouts and rewards.

    Raises:
        ConfigError: the file cannot be read, holds no such key, or one that nobody reads.
    """
    read = read_yaml(path, "--options names a file that holds a recipe's kernelgym, or its keys")
    node = known_keys(read.get("kernelgym", read))
    # What only a training knows stands in other keys, such as `cold_start: ${quickstart_dir}/corpus.parquet`.
    values = {key: node[key] for key in option_names(GymOptions) if key in node}
    if not values:
        raise ConfigError(f"--options is {path}, which holds no key of the gym: write a recipe's kernelgym into it")
    if referring := next((key for key, value in values.items() if "${" in str(value)), None):
        words = f"kernelgym.{referring} in {path} is {values[referring]}, which refers to another key"
        raise ConfigError(f"{words}: write its value")
    return values


def read_settings(option: str, settings: Sequence[str], example: str) -> dict[str, Any]:
    """Return the keys and values of an option that is given once for each, as in `--set disk_mb=512`.

    Raises:
        ConfigError: one of them is no key with a value.
    """
    parts = {setting: setting.partition("=") for setting in settings}
    for setting, (key, equals, _) in parts.items():
        if not (key and equals):
            raise ConfigError(f"{option} is {setting!r}; it must be an option with its value, as in {example}")
    return {key: value_of(text) for key, _, text in parts.values()}


def chosen(flags: Mapping[str, Any], *, base: Mapping[str, Any] = STRICT, settings: Sequence[str] = ()) -> GymOptions:
    """Return the gym that flags ask for, over what holds without them; settings of single keys come last.

    Raises:
        ConfigError: a value is out of its range, or there is no such key.
    """
    values = {**base, **{_RENAMED.get(flag, flag): value for flag, value in flags.items() if flag != "timeout"}}
    if flags.get("timeout") is not None:
        values |= dict.fromkeys(_TIME_LIMITS, flags["timeout"])
    named = read_settings("--set", settings, "disk_mb=512")
    if unknown := next((key for key in named if key not in option_names(GymOptions)), None):
        known = option_names(GymOptions)
        raise ConfigError(f"--set names {unknown!r}; {nearest(unknown, known)}keys of kernelgym are {', '.join(known)}")
    values |= named
    if "," in (targets := values.get("compile_for", "")):
        values["compile_for"] = _names(targets)
    return GymOptions(**values)
