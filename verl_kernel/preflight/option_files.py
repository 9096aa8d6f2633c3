# SPDX-License-Identifier: Apache-2.0
"""Writes the files of our recipes that hold every option with its default; `make options` calls it.

Key, default, range and comment come from the classes of options; the files are committed, and a test compares them.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from verl_kernel.adaptive import AdaOptions
from verl_kernel.advantage.options import RecOptions as RecBaselines
from verl_kernel.advantage.options import TrlooOptions
from verl_kernel.advantage.topr import ToprOptions as ToprSigns
from verl_kernel.env.options import STRICT, GymOptions
from verl_kernel.loss.options import RecLossOptions, ToprLossOptions, TurnCorrectionOptions
from verl_kernel.option_group import OptionGroup, description, words_of
from verl_kernel.reward.options import RolloutOptions
from verl_kernel.reward.profiling import ProfilingReward
from verl_kernel.sampler.options import PRSOptions

CONFIG = Path(__file__).parents[1] / "config"
GYM: tuple[type[OptionGroup], ...] = (RolloutOptions, GymOptions, ProfilingReward)
TRAINING: tuple[type[OptionGroup], ...] = (
    *(TrlooOptions, RecBaselines, ToprSigns, AdaOptions),
    *(TurnCorrectionOptions, RecLossOptions, ToprLossOptions),
    PRSOptions,
)
_HEAD = "# @package _global_\n# {}\n# Made of the classes of options by `make options`: do not edit.\n"
_WIDTH = 120


def files() -> dict[Path, str]:
    """Return the text of every generated file."""
    strict = "".join(f"  {key}: {_scalar(value)}\n" for key, value in STRICT.items())
    return {
        CONFIG / "_generated_options.yaml": _file("Options of estimators, losses and the sampler.", TRAINING),
        CONFIG / "gym" / "training.yaml": _file("The gym, the rollout against it and the reward: the defaults.", GYM),
        CONFIG / "gym" / "strict.yaml": _HEAD.format("The gym as `verl-kernel eval` and `bench` judge by.")
        + f"defaults:\n  - training\n  - _self_\n\nkernelgym:\n{strict}",
    }


def _file(title: str, kinds: Iterable[type[OptionGroup]]) -> str:
    lines: list[str] = []
    open_nodes: list[str] = []
    for kind in kinds:
        nodes = kind.NODE.split(".")
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(nodes, open_nodes, strict=False)))
        for depth in range(shared, len(nodes)):
            docstring = kind.__doc__ if depth == len(nodes) - 1 else None
            lines += [
                "",
                *_comment((docstring or "").partition("\n")[0], "  " * depth),
                f"{'  ' * depth}{nodes[depth]}:",
            ]
        open_nodes = nodes
        lines += _node(kind, "  " * len(nodes))
    return _HEAD.format(title) + "\n".join(lines) + "\n"


def _node(kind: type[OptionGroup], indent: str) -> Iterable[str]:
    sentence_of, hints = sentences(kind), get_type_hints(kind, include_extras=True)
    for key, value in kind.in_recipes().items():
        yield from ("", *_comment(f"{sentence_of[key]} {_rule(kind, key, hints[key], sentence_of[key])}", indent))
        yield f"{indent}{key}: {_scalar(value)}"


def sentences(kind: type[OptionGroup]) -> dict[str, str]:
    """Return the text below each field of a class of options, including inherited fields."""
    by_field: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if issubclass(owner, OptionGroup) and owner is not OptionGroup:
            by_field |= _own_sentences(owner)
    return by_field


def _own_sentences(kind: type[OptionGroup]) -> dict[str, str]:
    (body,) = (node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: inspect.cleandoc(str(text.value.value)).replace("\n", " ")
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def _rule(kind: type[OptionGroup], key: str, hint: Any, sentence: str) -> str:
    """Return the rule for a value, in brackets, if neither its default nor its text shows it."""
    words = words_of(hint)
    named = words and all(f"`{word}`" in sentence for word in words)
    rule = "" if named or hint in (bool, str, str | None, int, Any) else description(hint)
    is_open = key in kind.LEFT_OPEN and "null" not in sentence
    usual = f"null: the loss's own value, else {_scalar(getattr(kind, key))}" if is_open else ""
    both = "; ".join(filter(None, (rule, usual)))
    return f"({both})" if both else ""


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if yaml.safe_load(value) == value else json.dumps(value)
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
