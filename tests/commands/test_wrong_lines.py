# SPDX-License-Identifier: Apache-2.0
"""Wrong command lines, made of every command's own parameters: each ends in a sentence, a status and under two seconds.

A line names a file that is not there, so that it ends even if the value under test is a good one. All are run in a
folder whose name has a blank, by a user without a home.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tests.commands.bad_files import bad_files
from tests.commands.lines import Done, run_lines
from verl_kernel.cli import COMMANDS, load_command

ENDS = {
    "eval": "none.py k.py", "profile": "none.py k.py", "bench": "--suite none --kernels empty", "bench-curves": "none",
    "bench-board": "none", "bench-harbor": "none",
    "aces": "none --candidates empty --out o.json", "data quickstart": "--out file --world none",
    "data rows": "kernelbench none --out o.parquet", "data talks": "drkernel-coldstart none --out o.parquet",
    "data split": "none --out o", "data temperatures": "none --out o.parquet",
    "data audit": "none", "data coldstart": "--suite none --run r --out o.parquet",
    "remix": "--data none --model model --out o", "watch": "w -- nosuchcommand", "report": "none",
    "compare": "none empty", "best": "none", "clock validate": "none", "serve": "--port 0 --options none",
    "mcp": "--suite none", "serve-status": "--address 127.0.0.1:1", "serve-drain": "node --address 127.0.0.1:1",
    "preflight": "--config-name=none", "plan": "--config-name=none", "doctor": "surplus",
}  # fmt: skip
"""Arguments by which each command ends with an error, whatever else it is given."""
NUMBERS, WORDS, PATHS = ("x", "-1", "9" * 30), ("no such wörd",), ("no such folder/a b",)
"""Values of an option, by its type."""
URLS = ("127.0.0.1", "ftp://host", "http://", "http://[::1", "http://host:99999", "http://a b", "https://:80", "//x")
MACHINES = tuple("8 H100 8xH100 0xH100-80GB -1xH100-80GB 8xH900-80GB 8xH100-0GB 8xH100-80 8*H100-80GB".split())
OVERRIDES = (
    "trainer", "=3", "trainer.nnodes=[", "trainer.nnode=2", "+trainer.nnode=2", "trainer.nnodes=-1", "trainer.nnodes=x",
    "data.train_files=none.parquet", "gpus=nine", "~data.nothing", "kernelgym.device=tpu", "kernelgym=3",
    "+kernelgym.num_judge=2", "data.train_batch_size=0", "trainer.nnodes=${nothing}", "actor_rollout_ref=null",
    "trainer.logger=[wand]", "trainer.n_gpus_per_node=3",
)  # fmt: skip


@dataclass(frozen=True)
class WrongLine:
    words: tuple[str, ...]
    named: str = ""
    """What the sentence must name; empty where another part of the line may be told first."""


def parsers() -> Iterator[tuple[str, Any]]:
    """Every command with its own parameters, by the words that call it."""
    for name in COMMANDS:
        parser = load_command(name)
        inner = getattr(parser, "commands", {})
        yield from ((f"{name} {word}", command) for word, command in inner.items())
        if not inner:
            yield name, parser


def of_command(name: str, parser: Any) -> Iterator[WrongLine]:
    call, ends = tuple(name.split()), tuple(ENDS[name].split())
    if any(parameter.required for parameter in parser.params):
        yield WrongLine(call, "Missing")
    yield WrongLine((*call, "--no-such-flag", *ends), "--no-such-flag")
    hints = get_type_hints(inspect.unwrap(parser.callback))
    for option in (parameter for parameter in parser.params if parameter.opts[-1].startswith("--")):
        if option.name not in hints:  # --help
            continue
        flag, kinds = option.opts[-1], {hints[option.name], *get_args(hints[option.name])}
        if getattr(option, "is_flag", False):
            yield WrongLine((*call, f"{flag}=maybe", *ends), flag)
            continue
        yield WrongLine((*call, *ends, flag), flag) if "--" not in ends else WrongLine((*call, flag), flag)
        is_number = bool(kinds & {int, float})
        for value in NUMBERS if is_number else PATHS if Path in kinds else WORDS:
            word, must = f"{flag}={value}", is_number and value == "x"
            chosen = (word, *ends) if "--" in ends else (*ends, word)  # of two the last counts
            yield WrongLine((*call, *chosen), flag if must else "")


def lines() -> Iterator[WrongLine]:
    for name, parser in parsers():
        yield from of_command(name, parser)
    for word in ("evl", "Eval", "--no-such-flag", "data rowz"):  # `data` alone shows its help
        yield WrongLine(tuple(word.split()))
    for url in URLS:
        yield WrongLine(("eval", "ref.py", "k.py", "--address", url), "--address")
        yield WrongLine(("bench", "--suite", "cpu", "--base-url", url, "--model", "m"), "--base-url")
    for machine in MACHINES:
        yield WrongLine(("preflight", "--config-name=none", f"--machine={machine}"), "--machine")
        yield WrongLine(("plan", "--config-name=none", f"--machine={machine}"), "--machine")
    for override in OVERRIDES:
        yield WrongLine(("preflight", "--config-name=cpu_quickstart", override))
    for rate in ("judge_s", "judge_s=x", "judge=1", "judge_s=-1", "=", "judge_s=nan"):
        yield WrongLine(("plan", f"--rate={rate}"), "--rate")
    for file in ("/dev/zero", "/dev/null", "cut.parquet", "binary.py", "latin.py", "large.py", "loop.py", "empty.py"):
        yield WrongLine(("eval", file, "k.py"), file)
        yield WrongLine(("data", "rows", "folder", file, "--out", "o.parquet"), file)


LINES = {line.words: line for line in lines()}
QUICK = {words for number, words in enumerate(LINES) if number % 33 == 0}
"""Those of `make test`."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Done]:
    folder = bad_files(tmp_path_factory.mktemp("wrong lines"))

    @functools.cache
    def together(is_quick: bool) -> dict[tuple[str, ...], Done]:
        chosen = [words for words in LINES if (words in QUICK) == is_quick]
        ended = run_lines(chosen, folder, COLUMNS="400", VERL_PLATFORM="cpu", HOME="/proc/nohome")
        return dict(zip(chosen, ended, strict=True))

    return lambda words: together(words in QUICK)[words]


def fault(ended: Done, line: WrongLine) -> str:
    """What is wrong with how a line ended; empty if it is as it should be."""
    error = ended.error
    if "Traceback" in error or "Traceback" in ended.out:
        return "a traceback"
    if ended.status not in (1, 2, 3):
        return f"status {ended.status}"
    is_usage = "─ Error ─" in error  # the parser's own words, whose remedy is in them or in the line above
    if not is_usage and not (error.startswith("Error: ") and error.count("\n") == 1):
        return "no sentence"
    if not is_usage and not ({": ", "; "} & {error[at : at + 2] for at in range(7, len(error))}):
        return "no remedy"
    if line.named not in error:
        return f"{line.named} is not named"
    if ended.heavy:
        return f"imports {ended.heavy}"
    return "" if ended.seconds < 2 else f"{ended.seconds:.1f} s"


@pytest.mark.slow
@pytest.mark.parametrize("words", [QUICK, pytest.param(LINES.keys() - QUICK, marks=pytest.mark.exhaustive)])
def test_every_wrong_line_ends_in_a_sentence(done: Callable[[tuple[str, ...]], Done], words: set[tuple[str, ...]]):
    faults = {}
    for each in words:
        ended = done(each)
        if what := fault(ended, LINES[each]):
            faults[" ".join(each)[:120]] = f"{what}: {ended.error[-200:]}"
    assert faults == {}


def test_there_are_lines_of_every_command():
    assert {words for words, _ in parsers()} == ENDS.keys()
    assert len(LINES) >= 150
