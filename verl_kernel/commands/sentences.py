# SPDX-License-Identifier: Apache-2.0
"""Ends commands that cannot continue: `Error:` and one sentence on standard error, and an exit status.

The status is 2 if the request cannot work, 3 if the gym, an endpoint, the disk or a trainer failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import typer

from verl_kernel.errors import EndpointError, InfraError, StorageError, TrainingError, VerlKernelError, cannot_load

USAGE_ERROR, INFRA_ERROR, INTERRUPTED = 2, 3, 130
"""Exit codes: the request cannot work; the gym, an endpoint, the disk or a trainer failed; Ctrl-C."""
_KEY = re.compile(r"\b(?:kernelgym|serve|bench|quickstart|remix(?:\.tuning)?)\.([a-z]\w*)")
_OTHER_NAMES = {
    "correctness_trials": "trials",
    "reference_mode": "baseline",
    "reference_timeout_s": "timeout",
    "load_timeout_s": "timeout",
    "run_timeout_s": "timeout",
}
"""Keys of the gym whose command-line options have different names."""


def in_sentences(command: Any) -> Any:
    """Return a command, with its sub-commands, that reports errors in a sentence that names options instead of keys."""
    for child in getattr(command, "commands", {}).values():
        in_sentences(child)
    if command.callback is not None:
        flags = {parameter.name: parameter.opts[0] for parameter in command.params if parameter.opts[0].startswith("-")}
        command.callback = guarded(command.callback, flags)
    return command


def exit_status(exc: VerlKernelError) -> int:
    """Return the exit status for an error."""
    failed = isinstance(exc, (InfraError, EndpointError, StorageError, TrainingError))
    return INFRA_ERROR if failed else USAGE_ERROR


def sentence(exc: VerlKernelError, flags: Mapping[str, str]) -> str:
    """Return the message of an error on one line; the last lines of a failed trainer stay below it.

    Where an option is named, `null` is not offered: a command line has no such value.

    Args:
        exc: the error.
        flags: options of the command by their names; a key that an option sets is replaced by the option.
    """
    text = str(exc) if isinstance(exc, TrainingError) else " ".join(str(exc).split())
    named = _KEY.sub(lambda match: flags.get(_OTHER_NAMES.get(match[1], match[1]), match[0]), text)
    return named if named == text else named.removesuffix(", or null")


def guarded(callback: Callable[..., Any], flags: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """Return a command's function that ends with `Error:` and one sentence where it cannot continue.

    Args:
        callback: the function.
        flags: options of the command by their names, as for `sentence`.
    """

    @functools.wraps(callback)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return callback(*args, **kwargs)
        except VerlKernelError as exc:
            typer.echo(f"Error: {sentence(exc, flags or {})}", err=True)
            raise typer.Exit(exit_status(exc)) from None
        except ImportError as exc:
            if (exc.name or "").startswith("verl_kernel"):
                raise
            typer.echo(f"Error: {cannot_load(exc)}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None

    return run
