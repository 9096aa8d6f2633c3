# SPDX-License-Identifier: Apache-2.0
"""The console script `verl-kernel`; it imports a subcommand's module only when that is called, so `--help` is quick.

`verl_kernel.commands.<name>` (dashes become dots) holds either a function `command` (typer reads its annotations) or a
`typer.Typer` named `app`.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from verl_kernel import __version__

COMMANDS = {
    "eval": "Judge kernels against a reference program.",
    "profile": "Say what bounds each kernel of a file, and which change would save most.",
    "bench": "Measure a model, or saved kernels, on a suite of tasks.",
    "bench-board": "Compare bench runs as one page, suite by suite.",
    "bench-curves": "Plot score against turns and tokens for one or more runs.",
    "bench-harbor": "Write a bench's tasks in Harbor's format, for other harnesses.",
    "aces": "Pick the input kinds that best separate right from wrong kernels (ACES).",
    "data": "Build tasks, data sets and the small model of the quickstart.",
    "remix": "Fine-tune on conversations with several LoRAs and a router, and write PEFT adapters.",
    "watch": "Run a trainer with its output in a file and its progress on screen.",
    "report": "Show what a run changed, and write its curves and best kernels as a page.",
    "compare": "Compare two bench runs of one suite, task by task.",
    "best": "Write the best verified kernel of each task as a file that can be imported.",
    "clock": "Compare the simulated clock with times that a GPU measured.",
    "serve": "Serve the gym over HTTP: judges on other machines than those that train.",
    "mcp": "Give coding agents tools: tasks, trials on public inputs, profiles, submissions.",
    "serve-status": "Show the queue, judges and pace of a running cluster's pool.",
    "serve-drain": "Stop giving work to judges of a running pool before maintenance, or resume.",
    "preflight": "Check a training's configuration, data and machine without starting anything.",
    "plan": "Show what a training step would take on described GPUs, part by part, from stated rates.",
    "doctor": "Check that this machine can run the recipes, and say what is missing.",
}


class _Commands(TyperGroup):  # of click, or of typer's own copy of it, by its version
    """The subcommands, each whole where a shell asks what could follow its name."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand: its own parser for a completion, else one that hands on all arguments."""
        if ctx.resilient_parsing and cmd_name in COMMANDS:
            return load_command(cmd_name)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(cls=_Commands, no_args_is_help=True, help="Train language models to write Triton kernels.")


def load_command(name: str) -> Any:
    """Return the parser of a subcommand, with the parsers of its own ones."""
    module = importlib.import_module(f"verl_kernel.commands.{name.replace('-', '.')}")
    sub_app = getattr(module, "app", None)
    if sub_app is None:
        sub_app = typer.Typer(add_completion=False)
        sub_app.command()(module.command)
    return get_command(sub_app)


def _run(name: str, args: list[str]) -> None:
    from verl_kernel.commands.sentences import in_sentences

    for stream in (sys.stdout, sys.stderr):  # names of files may hold what the terminal's encoding has no form for
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    in_sentences(load_command(name)).main(args=args, prog_name=f"verl-kernel {name}")


def _forward(name: str) -> Callable[[typer.Context], None]:
    def run(context: typer.Context) -> None:
        from verl_kernel.commands.sentences import guarded

        guarded(_run)(name, context.args)

    return run


# The subcommand itself parses all arguments after its name, `--help` too.
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help, context_settings=_PASS_THROUGH, add_help_option=False)(_forward(_name))


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"verl-kernel {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Version.")] = False,
) -> None:
    """Train language models to write Triton kernels."""
