# SPDX-License-Identifier: Apache-2.0
"""How files are cut, named and licensed, what they import, and which keys of verl the recipes set."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml

import verl_kernel.env
from tests.repository.pages import ROOT
from verl_kernel.verl_keys import KEYS

LISTED = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
NAMES = subprocess.run(LISTED, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
FILES = [path for path in sorted({*map(Path, NAMES)}) if (ROOT / path).is_file()]
"""All files that are in git or could be added, by their paths from the root."""
SOURCES = {path: (ROOT / path).read_text() for path in FILES if path.suffix == ".py"}
PACKAGE = {
    ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCES
    if path.parts[0] == "verl_kernel"
}
"""Paths of the package's modules by their names."""
RECIPES = [path for path in FILES if path.is_relative_to("verl_kernel/config") and path.suffix == ".yaml"]
LOSS = "actor_rollout_ref.actor.policy_loss"
OUR_KEYS = (
    *("weight_transfer.", "kernelgym.", "algorithm.trloo.", "algorithm.rec.", "algorithm.topr.", "algorithm.ada."),
    *("trainer.v1.sampler.sampler_kwargs.", f"{LOSS}.turn_correction.", f"{LOSS}.rec.", f"{LOSS}.topr."),
)


VAGUE = set(
    "found made told known kept place places asked given left one other others seen wanted rest least most held done "
    "taken drawn shown said spent".split()
)
"""Names that say nothing of what they hold."""


def stored(source: str) -> Iterator[str]:
    """Names of the variables, parameters and attributes that a source stores."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg


def test_names_say_what_they_hold():
    names = [name.strip("_") for path in PACKAGE.values() for name in stored(SOURCES[path])]
    assert sum(name in VAGUE for name in names) <= 0.005 * len(names)


def test_a_public_class_has_its_name_alone():
    names = Counter(re.findall(r"^class ([A-Z]\w+)", "\n".join(SOURCES[path] for path in PACKAGE.values()), re.M))
    assert [name for name, count in names.items() if count > 1] == []


def by_position(source: str) -> Iterator[tuple[str, int]]:
    """Names of a source's functions, and how many parameters of each a caller may pass by position."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            yield getattr(node, "name", "lambda"), len(names) - (names[:1] in (["self"], ["cls"]))


def test_what_is_passed_by_position_is_counted():
    source = "class A:\n    def f(self, a, /, b, *c, d): ...\nasync def g(a, *, b): ...\nh = lambda a, b=1: a\n"
    assert sorted(by_position(source)) == [("f", 2), ("g", 1), ("lambda", 2)]


def test_no_call_has_six_arguments_by_position():
    """A reader of such a call would have to count."""
    counts = [(str(path), *function) for path in PACKAGE.values() for function in by_position(SOURCES[path])]
    assert [function for function in counts if function[-1] >= 6] == []


def test_tables_alone_keep_their_own_layout():
    assert sum(SOURCES[path].count("# fmt: skip") for path in PACKAGE.values()) <= 20


def test_a_source_begins_with_its_licence():
    licence = "# SPDX-License-Identifier: Apache-2.0\n"
    assert [str(path) for path, text in SOURCES.items() if text and not text.startswith(licence)] == []


def imported(source: str) -> Iterator[str]:
    """Names of the package's modules that a source imports: also for types alone, and when a function runs."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{item.name}" for item in node.names]
            yield from (name if name in PACKAGE else str(node.module) for name in names)
        elif isinstance(node, ast.Import):
            yield from (item.name for item in node.names)


def test_imports_form_no_circle():
    graph = {
        name: {other for other in imported(SOURCES[path]) if other in PACKAGE}
        for name, path in PACKAGE.items()
        if name != "verl_kernel.env"  # it names what it exports, and loads it when it is asked for
    }
    TopologicalSorter(graph).prepare()


def test_the_gym_has_each_name_that_it_exports():
    assert [name for name in verl_kernel.env.__all__ if not hasattr(verl_kernel.env, name)] == []


def test_the_version_is_one():
    version = verl_kernel.__version__
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_a_container_takes_the_steps_that_are_proved():
    proofs = [ROOT / "requirements" / f"{name}.sh" for name in ("check_install", "check_wheel", "release")]
    proved = " ".join(path.read_text() for path in proofs).replace('"$python"', "python3").replace(" VENV=.venv", "")
    texts = [path.read_text() for path in (ROOT / "containers").iterdir()]
    steps = [step for text in texts for step in re.findall(r"^RUN ((?:make|verl-kernel) .*)", text, re.M)]
    assert len(steps) == 4
    assert [
        step for step in steps if step.replace("/examples", "examples").replace(" VENV=.venv", "") not in proved
    ] == []


def test_workflows_run_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z-]+)(?: [a-z-]+)*:", (ROOT / "Makefile").read_text(), re.M))
    workflows = "\n".join(path.read_text() for path in (ROOT / ".github/workflows").iterdir())
    runs = re.findall(r"run: make ([a-z-]+)", workflows)
    assert {"check", "test", "site", "release"} <= set(runs) <= targets


def test_no_file_names_a_package_host_but_pytorchs_own():
    host = re.compile(r"(--index-url|--extra-index-url|--find-links)[ =]\S+|https?://[^\s)]*(pypi|whl|simple)")
    allowed = "TORCH_INDEX ?= https://download.pytorch.org/whl/cpu\n"
    kinds = {".txt", ".toml", ".md", ".sh", ".yaml", ".yml", ".cfg"}
    texts = {path: (ROOT / path).read_text() for path in FILES if path.suffix in kinds or path.name == "Makefile"}
    assert [str(path) for path, text in texts.items() if host.search(text.replace(allowed, ""))] == []


def names_of_tests(source: str) -> list[str]:
    nodes = ast.walk(ast.parse(source))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in functions if node.name.startswith("test_")]


def test_names_of_coroutines_count_too():
    source = "def test_one(): ...\nasync def test_two(): ...\ndef helper(): ...\n"
    assert names_of_tests(source) == ["test_one", "test_two"]


def test_a_line_of_a_report_holds_the_name_of_a_test():
    files = {str(path): names_of_tests(text) for path, text in SOURCES.items() if path.match("test_*.py")}
    assert [(file, name) for file, names in files.items() for name in names if len(name) > 59] == []


def leaves(node: dict[str, Any], above: str) -> Iterator[str]:
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def keys(path: Path) -> set[str]:
    """Keys that a file of configuration sets; folders of its own, at the top, are for references."""
    text = (ROOT / path).read_text()
    package = text.split()[2] if text.startswith("# @package ") else "_global_"
    found = leaves(yaml.safe_load(text) or {}, "" if package == "_global_" else f"{package}.")
    return {key for key in found if "." in key and not key.startswith(("defaults", "hydra."))}


def test_files_set_keys():
    assert {"trainer.n_gpus_per_node", "algorithm.rollout_correction.bypass_mode"} <= set().union(*map(keys, RECIPES))


@pytest.mark.parametrize("path", [path for path in RECIPES if not path.stem.endswith(("_sft", "_mix"))], ids=str)
def test_a_start_looks_at_each_key_of_verl_that_is_set(path):
    """In all files but those for the SFT trainer."""
    assert [key for key in sorted(keys(path)) if key not in KEYS and not key.startswith(OUR_KEYS)] == []
